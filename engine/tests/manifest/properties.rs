//! Properties of expansion and order, over generated manifests.

use std::fmt::Write;

use engine::graph;
use engine::plan::Source;
use proptest::prelude::*;

use crate::toys::{load, plan};

/// For each node, which nodes it depends on; always later ones, so that order has work to do.
fn dags() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::btree_set(0..30usize, 0..4), 1..30).prop_map(|edges| {
        let count = edges.len();
        let needs = edges.into_iter().enumerate();
        needs
            .map(|(node, targets)| targets.into_iter().filter(|to| *to > node && *to < count).collect())
            .collect()
    })
}

/// Which node may come next is decided anew for each place: slow and plain.
fn reference_order(depends_on: &[Vec<usize>]) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < depends_on.len() {
        let next = (0..depends_on.len())
            .find(|node| !order.contains(node) && depends_on[*node].iter().all(|need| order.contains(need)));
        order.push(next.expect("no cycle"));
    }
    order
}

proptest! {
    /// The order is the one that always takes the first node that is free.
    #[test]
    fn order_is_topological_and_stable(depends_on in dags()) {
        prop_assert_eq!(graph::order(&depends_on), Ok(reference_order(&depends_on)));
    }

    /// What is called a cycle is one, and every edge of it exists.
    #[test]
    fn cycles_are_cycles(depends_on in dags(), from in 0..30usize, to in 0..30usize) {
        let mut depends_on = depends_on;
        let count = depends_on.len();
        let (from, to) = (from % count, to % count);
        if !depends_on[from].contains(&to) {
            depends_on[from].push(to);
        }
        match graph::order(&depends_on) {
            Ok(order) => prop_assert_eq!(order, reference_order(&depends_on)),
            Err(cycles) => {
                prop_assert_eq!(cycles.len(), 1, "one added edge makes one component");
                for cycle in cycles {
                    prop_assert_eq!(cycle.first(), cycle.last());
                    prop_assert!(cycle.len() >= 2);
                    for pair in cycle.windows(2) {
                        prop_assert!(depends_on[pair[0]].contains(&pair[1]));
                    }
                    let mut inner = cycle[1..].to_vec();
                    inner.sort_unstable();
                    inner.dedup();
                    prop_assert_eq!(inner.len(), cycle.len() - 1, "no node but the first twice");
                }
            }
        }
    }

    /// A manifest of literal stages: sources lead to the stages that were named.
    #[test]
    fn references_survive_sorting(depends_on in dags()) {
        let mut text = String::from("name = \"x\"\n");
        for (node, needs) in depends_on.iter().enumerate() {
            let more: Vec<String> = needs.iter().map(|need| format!("\"@s{need}\"")).collect();
            let _ = writeln!(text, "[stage.s{node}]\nkind = \"table\"\nsamples = {{}}\nmore = [{}]", more.join(", "));
        }
        let plan = plan(&text);
        let wanted: Vec<String> = reference_order(&depends_on).iter().map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = plan.stages.iter().map(|stage| stage.name.as_str()).collect();
        prop_assert_eq!(names, wanted.iter().map(String::as_str).collect::<Vec<_>>());
        for (at, stage) in plan.stages.iter().enumerate() {
            for (text, source) in &stage.inputs {
                let Source::Stage { index, .. } = source else { panic!("a stage") };
                prop_assert!(*index < at);
                prop_assert!(stage.depends_on.contains(index));
                prop_assert_eq!(format!("@{}", plan.stages[*index].name), text.clone());
            }
            prop_assert_eq!(stage.depends_on.len(), stage.inputs.len());
        }
    }

    /// arms × seeds: the count is the product, names are unique, and an inner reference stays in
    /// its arm and seed.
    #[test]
    fn expansion_is_a_product(arms in 1..6usize, seeds in 1..5usize, picked in 1..6usize) {
        let mut text = String::from("name = \"x\"\n");
        for arm in 0..arms {
            let _ = writeln!(text, "[arm.a{arm}]");
        }
        let picked: Vec<String> = (0..picked.min(arms)).map(|arm| format!("\"a{arm}\"")).collect();
        let seeds_text: Vec<String> = (0..seeds).map(|seed| seed.to_string()).collect();
        let _ = write!(
            text,
            "[matrix]\nseed = [{}]\n[stage.base]\nkind = \"note\"\n\
             [stage.one]\nkind = \"train\"\nforeach = [\"seed\", \"arm\"]\nmodel = \"@base\"\n\
             [stage.two]\nkind = \"train\"\nforeach = [\"arm\", \"seed\"]\narms = [{}]\nmodel = \"@one\"\n\
             [stage.all]\nkind = \"table\"\nsamples = \"@two[*]\"\n",
            seeds_text.join(", "),
            picked.join(", "),
        );
        let plan = plan(&text);
        prop_assert_eq!(plan.stages.len(), 2 + arms * seeds + picked.len() * seeds);
        let mut names: Vec<&str> = plan.stages.iter().map(|stage| stage.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        prop_assert_eq!(names.len(), plan.stages.len());
        for stage in plan.stages.iter().filter(|stage| stage.base == "two") {
            let [need] = stage.depends_on[..] else { panic!("one need") };
            let (arm, seed) = stage.name[4..stage.name.len() - 1].split_once(",seed=").expect("both axes");
            prop_assert_eq!(&plan.stages[need].name, &format!("one[seed={seed},{arm}]"));
            prop_assert_eq!(stage.arm.as_deref(), Some(arm));
        }
        let all = plan.stages.last().expect("a last stage");
        prop_assert_eq!(all.depends_on.len(), picked.len() * seeds);
    }

    /// No text makes the loader panic, and what it says has a remedy.
    #[test]
    fn any_text_is_answered(text in "(name = \"x\"\n)?([a-z]{1,6} ?= ?[\\[\\]{}\"$@a-z0-9.,= ]{0,12}\n|\\[[a-z.\"]{0,12}\\]\n){0,8}") {
        if let Err(errors) = load(&text) {
            prop_assert!(!errors.problems().is_empty());
            for problem in errors.problems() {
                prop_assert!(!problem.help.is_empty());
            }
            prop_assert!(!errors.render(false, 80).is_empty());
            prop_assert!(errors.json()["problems"].is_array());
        }
    }

    /// Known pieces put together at random: deeper than plain noise gets.
    #[test]
    fn any_mixture_is_answered(lines in prop::collection::vec(prop::sample::select(PIECES), 0..25)) {
        let text = format!("name = \"x\"\n{}", lines.concat());
        if let Err(errors) = load(&text) {
            prop_assert!(!errors.problems().is_empty());
            prop_assert!(!errors.render(false, 80).is_empty());
        }
    }
}

const PIECES: &[&str] = &[
    "[stage.a]\n",
    "[stage.b]\n",
    "[stage.c.adapter]\n",
    "[stage.\"A\"]\n",
    "[arm.x]\n",
    "[arm.y.a]\n",
    "[arm.y.b]\n",
    "[matrix]\n",
    "[vars]\n",
    "[defaults.train]\n",
    "[claims.x]\n",
    "kind = \"train\"\n",
    "kind = \"table\"\n",
    "kind = \"note\"\n",
    "foreach = [\"arm\", \"seed\"]\n",
    "foreach = [\"arm\"]\n",
    "arms = [\"x\"]\n",
    "seed = [1, 2]\n",
    "seed = 5\n",
    "model = \"@a\"\n",
    "model = \"@b[*]\"\n",
    "samples = \"@a[*]\"\n",
    "samples = { l = \"@b[seed=*]\" }\n",
    "more = [\"@a[*]/f\", \"@b\"]\n",
    "data = \"${v}\"\n",
    "v = \"@a/${w}\"\n",
    "w = \"${v}\"\n",
    "text = \"${arm}\"\n",
    "adapter = { type = \"lora\", rank = 2 }\n",
    "adapter = { type = \"none\" }\n",
    "lr = nan\n",
    "steps = -1\n",
    "publish = \"p\"\n",
    "publish = \"p/${seed}\"\n",
    "timeout = \"2h\"\n",
    "resources = { gpus = 1 }\n",
];
