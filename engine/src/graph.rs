//! The DAG: order, cycles, and drawings of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt::Write;

use petgraph::graph::{DiGraph, NodeIndex};

use crate::plan::Plan;

/// Puts nodes after everything they depend on, the earliest possible node first, so that nodes
/// that are free to go anywhere stay in the order given. `depends_on[n]` lists what `n` needs.
///
/// # Errors
/// The cycles, one for each strongly connected component: the nodes along a shortest cycle through
/// its first node, each depending on the next, the first one repeated at the end.
pub fn order(depends_on: &[Vec<usize>]) -> Result<Vec<usize>, Vec<Vec<usize>>> {
    let count = depends_on.len();
    let mut waiting: Vec<usize> = depends_on.iter().map(Vec::len).collect();
    let mut needed_by: Vec<Vec<u32>> = vec![Vec::new(); count];
    for (node, needs) in depends_on.iter().enumerate() {
        for &need in needs {
            needed_by[need].push(u32::try_from(node).unwrap_or(u32::MAX));
        }
    }
    let ready = (0..count).filter(|node| waiting[*node] == 0).map(Reverse);
    let mut ready: BinaryHeap<Reverse<usize>> = ready.collect();
    let mut sorted = Vec::with_capacity(count);
    while let Some(Reverse(node)) = ready.pop() {
        sorted.push(node);
        for &next in &needed_by[node] {
            let next = next as usize;
            waiting[next] -= 1;
            if waiting[next] == 0 {
                ready.push(Reverse(next));
            }
        }
    }
    if sorted.len() == count {
        return Ok(sorted);
    }
    Err(cycles(depends_on, &waiting))
}

/// A cycle for each strongly connected component among the nodes that are still waiting.
fn cycles(depends_on: &[Vec<usize>], waiting: &[usize]) -> Vec<Vec<usize>> {
    let mut graph: DiGraph<usize, ()> = DiGraph::new();
    let stuck: Vec<usize> = (0..waiting.len()).filter(|node| waiting[*node] > 0).collect();
    let index: HashMap<usize, NodeIndex> = stuck.iter().map(|node| (*node, graph.add_node(*node))).collect();
    for node in &stuck {
        for need in &depends_on[*node] {
            if let Some(need) = index.get(need) {
                graph.add_edge(index[node], *need, ());
            }
        }
    }
    // Kosaraju's algorithm, since petgraph's is not recursive: chains may be long.
    let mut found: Vec<Vec<usize>> = petgraph::algo::kosaraju_scc(&graph)
        .into_iter()
        .filter(|component| component.len() > 1 || graph.contains_edge(component[0], component[0]))
        .map(|component| {
            let mut nodes: Vec<usize> = component.iter().map(|at| graph[*at]).collect();
            nodes.sort_unstable();
            shortest_cycle(depends_on, &nodes)
        })
        .collect();
    found.sort();
    found
}

/// The shortest cycle through the first of `nodes`, which form a strongly connected component.
fn shortest_cycle(depends_on: &[Vec<usize>], nodes: &[usize]) -> Vec<usize> {
    let start = nodes[0];
    let mut reached_from: HashMap<usize, usize> = HashMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(node) = queue.pop_front() {
        for &need in &depends_on[node] {
            if need == start {
                let mut cycle = vec![start, node];
                while let Some(previous) = reached_from.get(cycle.last().unwrap_or(&start)) {
                    cycle.push(*previous);
                }
                if node == start {
                    cycle.pop();
                    cycle.push(start);
                }
                cycle.reverse();
                return cycle;
            }
            let inside = nodes.binary_search(&need).is_ok();
            if inside && need != start && !reached_from.contains_key(&need) {
                reached_from.insert(need, node);
                queue.push_back(need);
            }
        }
    }
    vec![start, start]
}

/// Nodes and edges to draw.
struct Drawing {
    /// Name and kind.
    nodes: Vec<(String, &'static str)>,
    /// From what is needed to what needs it.
    edges: Vec<(usize, usize)>,
}

impl Drawing {
    /// Every expanded stage.
    fn stages(plan: &Plan) -> Self {
        let stages = plan.stages.iter().enumerate();
        Self {
            nodes: plan.stages.iter().map(|s| (s.name.clone(), s.kind.name)).collect(),
            edges: stages
                .flat_map(|(at, stage)| stage.depends_on.iter().map(move |need| (*need, at)))
                .collect(),
        }
    }

    /// One node for each `[stage.NAME]`, with the number of its instances.
    fn families(plan: &Plan) -> Self {
        let mut number: HashMap<&str, usize> = HashMap::new();
        let mut nodes: Vec<(&str, &'static str, usize)> = Vec::new();
        for stage in &plan.stages {
            let at = *number.entry(&stage.base).or_insert_with(|| {
                nodes.push((&stage.base, stage.kind.name, 0));
                nodes.len() - 1
            });
            nodes[at].2 += 1;
        }
        let stages = plan.stages.iter();
        let mut edges: Vec<(usize, usize)> = stages
            .flat_map(|stage| {
                let to = number[stage.base.as_str()];
                let needs = stage.depends_on.iter();
                let number = &number;
                needs.map(move |need| (number[plan.stages[*need].base.as_str()], to))
            })
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let nodes = nodes.into_iter().map(|(name, kind, count)| match count {
            1 => (name.to_owned(), kind),
            _ => (format!("{name} ×{count}"), kind),
        });
        Self { nodes: nodes.collect(), edges }
    }

    fn new(plan: &Plan, collapse: bool) -> Self {
        if collapse { Self::families(plan) } else { Self::stages(plan) }
    }
}

/// The DAG in Graphviz' language; `collapse` draws one node for each `[stage.NAME]`.
pub fn dot(plan: &Plan, collapse: bool) -> String {
    let drawing = Drawing::new(plan, collapse);
    let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = format!("digraph \"{}\" {{\n", quote(&plan.experiment.name));
    text.push_str("  rankdir=LR;\n  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n");
    for (at, (name, kind)) in drawing.nodes.iter().enumerate() {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  s{at} [label=\"{}\\n{kind}\"];", quote(name));
    }
    for (from, to) in drawing.edges {
        let _ = writeln!(text, "  s{from} -> s{to};");
    }
    text.push_str("}\n");
    text
}

/// The DAG as a Mermaid flowchart; `collapse` draws one node for each `[stage.NAME]`.
pub fn mermaid(plan: &Plan, collapse: bool) -> String {
    let drawing = Drawing::new(plan, collapse);
    let mut text = String::from("flowchart LR\n");
    for (at, (name, kind)) in drawing.nodes.iter().enumerate() {
        let name = name.replace('&', "&amp;").replace('"', "&quot;");
        let _ = writeln!(text, "  s{at}[\"{name}<br/><small>{kind}</small>\"]");
    }
    for (from, to) in drawing.edges {
        let _ = writeln!(text, "  s{from} --> s{to}");
    }
    text
}
