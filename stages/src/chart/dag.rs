//! The graph of a run, drawn in layers from left to right: a stage stands right of all it needs.
//! Within a layer, stages are ordered by the mean place of their neighbours (Sugiyama et al. 1981);
//! an edge over several layers gets a place in each, so that it runs between stages, not through.
//! Edges that follow from others are left out.

use super::{Face, Svg, Theme, fitted};

/// A stage to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// First line.
    pub name: String,
    /// Second line.
    pub detail: String,
    /// What pointing at it tells.
    pub hint: String,
    /// Where a click leads: `#stage-3`; nowhere if empty.
    pub link: String,
    /// Colour of its edge, and a sign that tells the same without colour.
    pub mark: (&'static str, char),
    /// Places of the nodes that it needs; all of them earlier.
    pub needs: Vec<usize>,
}

const BOX: (f64, f64) = (152.0, 42.0);
/// Between layers, and between boxes of one layer.
const GAP: (f64, f64) = (32.0, 12.0);
/// Room that a passing edge takes.
const LANE: f64 = 4.0;
const MARGIN: f64 = 6.0;
/// Names are cut as if they were of this size: bold, and in whatever typeface the reader has.
const BOLD: f64 = 14.5;
const SWEEPS: usize = 8;

/// Something that has a place in a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Slot {
    /// The box of a node.
    Node(usize),
    /// Passed by an edge.
    Lane,
}

struct Layout {
    slots: Vec<Slot>,
    /// Slots by layer, from top to bottom.
    layers: Vec<Vec<usize>>,
    /// Neighbours in the layer before, by slot.
    before: Vec<Vec<usize>>,
    /// Neighbours in the layer after, by slot.
    after: Vec<Vec<usize>>,
    /// Centre of each slot.
    centres: Vec<(f64, f64)>,
}

/// Draws the graph.
pub fn draw(nodes: &[Node], theme: Theme) -> String {
    let layout = Layout::of(nodes);
    let layers = layout.layers.len() as f64;
    let width = 2.0 * MARGIN + layers * BOX.0 + (layers - 1.0).max(0.0) * GAP.0;
    let heights = layout.layers.iter().map(|layer| layout.height(layer));
    let height = 2.0 * MARGIN + heights.fold(BOX.1, f64::max);
    let mut svg = Svg::new(theme).of_width(width);
    for (slot, after) in layout.after.iter().enumerate() {
        for next in after {
            let (from, to) = (layout.centres[slot], layout.centres[*next]);
            let half = BOX.0 / 2.0;
            svg.curve((from.0 + half, from.1), (to.0 - half, to.1), theme.muted);
            if layout.slots[slot] == Slot::Lane {
                svg.line((from.0 - half, from.1), (from.0 + half, from.1), theme.muted, 1.0, "");
            }
        }
    }
    for (slot, kind) in layout.slots.iter().enumerate() {
        if let Slot::Node(place) = kind {
            draw_node(&mut svg, &nodes[*place], layout.centres[slot], theme);
        }
    }
    svg.finish(height, &format!("The graph of {} stages", nodes.len()))
}

fn draw_node(svg: &mut Svg, node: &Node, centre: (f64, f64), theme: Theme) {
    let (x, y) = (centre.0 - BOX.0 / 2.0, centre.1 - BOX.1 / 2.0);
    svg.open(&node.link, &node.hint);
    svg.frame((x, y), BOX, theme.grid, node.mark.0);
    let face = |size, fill, bold| Face { size, fill, anchor: "start", bold };
    svg.text(x + 12.0, y + 17.0, face(12.0, theme.text, true), &fitted(&node.name, BOLD, BOX.0 - 34.0));
    svg.text(x + 12.0, y + 33.0, face(11.0, theme.muted, false), &fitted(&node.detail, 11.0, BOX.0 - 18.0));
    let sign = Face { anchor: "end", ..face(12.0, node.mark.0, true) };
    svg.text(x + BOX.0 - 8.0, y + 17.0, sign, &node.mark.1.to_string());
    svg.close(&node.link);
}

/// What a node needs, without what its other needs need anyway.
fn direct(nodes: &[Node], place: usize) -> Vec<usize> {
    let needs: Vec<usize> = nodes[place].needs.iter().copied().filter(|need| *need < place).collect();
    let mut implied = vec![false; place];
    for at in (0..place).rev() {
        if implied[at] || needs.contains(&at) {
            nodes[at].needs.iter().filter(|need| **need < at).for_each(|need| implied[*need] = true);
        }
    }
    needs.into_iter().filter(|need| !implied[*need]).collect()
}

impl Layout {
    fn of(nodes: &[Node]) -> Self {
        let mut depth: Vec<usize> = Vec::new();
        for node in nodes {
            let deepest = node.needs.iter().filter_map(|need| depth.get(*need)).max();
            depth.push(deepest.map_or(0, |depth| depth + 1));
        }
        let mut layout = Self {
            slots: (0..nodes.len()).map(Slot::Node).collect(),
            layers: vec![Vec::new(); depth.iter().max().map_or(0, |deepest| deepest + 1)],
            before: vec![Vec::new(); nodes.len()],
            after: vec![Vec::new(); nodes.len()],
            centres: Vec::new(),
        };
        for (place, layer) in depth.iter().enumerate() {
            layout.layers[*layer].push(place);
        }
        for place in 0..nodes.len() {
            for need in direct(nodes, place) {
                layout.connect(need, place, depth[need], depth[place]);
            }
        }
        layout.order();
        layout.place();
        layout
    }

    fn connect(&mut self, from: usize, to: usize, first: usize, last: usize) {
        let mut end = from;
        for layer in first + 1..last {
            let lane = self.slots.len();
            self.slots.push(Slot::Lane);
            self.before.push(Vec::new());
            self.after.push(Vec::new());
            self.layers[layer].push(lane);
            self.join(end, lane);
            end = lane;
        }
        self.join(end, to);
    }

    fn join(&mut self, from: usize, to: usize) {
        self.after[from].push(to);
        self.before[to].push(from);
    }

    /// Sweeps to and fro; each layer is sorted by the mean place of its neighbours in the one before.
    fn order(&mut self) {
        let mut place = vec![0.0; self.slots.len()];
        let number = |layer: &[usize], place: &mut [f64]| {
            for (at, slot) in layer.iter().enumerate() {
                place[*slot] = (at as f64 + 0.5) / layer.len() as f64;
            }
        };
        self.layers.iter().for_each(|layer| number(layer, &mut place));
        for sweep in 0..SWEEPS {
            let count = self.layers.len();
            for step in 1..count {
                let (layer, neighbours) = match sweep % 2 {
                    0 => (step, &self.before),
                    _ => (count - 1 - step, &self.after),
                };
                let mean = |slot: &usize| {
                    let near: Vec<f64> = neighbours[*slot].iter().map(|other| place[*other]).collect();
                    if near.is_empty() { place[*slot] } else { crate::stats::mean(&near) }
                };
                let mut sorted: Vec<(f64, usize)> =
                    self.layers[layer].iter().map(|slot| (mean(slot), *slot)).collect();
                sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = sorted.into_iter().map(|(_, slot)| slot).collect();
                number(&self.layers[layer], &mut place);
            }
        }
    }

    fn size(&self, slot: usize) -> f64 {
        if self.slots[slot] == Slot::Lane { LANE } else { BOX.1 }
    }

    fn height(&self, layer: &[usize]) -> f64 {
        let boxes: f64 = layer.iter().map(|slot| self.size(*slot)).sum();
        boxes + GAP.1 * layer.len().saturating_sub(1) as f64
    }

    /// Stacks each layer, centred.
    fn place(&mut self) {
        let tallest = self.layers.iter().map(|layer| self.height(layer)).fold(BOX.1, f64::max);
        let mut centres = vec![(0.0, 0.0); self.slots.len()];
        for (number, layer) in self.layers.iter().enumerate() {
            let x = MARGIN + number as f64 * (BOX.0 + GAP.0) + BOX.0 / 2.0;
            let mut y = MARGIN + (tallest - self.height(layer)) / 2.0;
            for slot in layer {
                centres[*slot] = (x, y + self.size(*slot) / 2.0);
                y += self.size(*slot) + GAP.1;
            }
        }
        self.centres = centres;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(needs: &[usize]) -> Node {
        Node {
            name: "train[lora]".into(),
            detail: "train · 3 s".into(),
            hint: String::new(),
            link: String::new(),
            mark: ("#000000", '✓'),
            needs: needs.to_vec(),
        }
    }

    #[test]
    fn a_stage_stands_right_of_what_it_needs_and_edges_have_lanes() {
        // 0 → 1 → 3 and 2 → 3 with 2 beside 0: the edge from 2 passes the layer of 1 beside it.
        let layout = Layout::of(&[node(&[]), node(&[0]), node(&[]), node(&[1, 2])]);
        let x: Vec<f64> = (0..4).map(|slot| layout.centres[slot].0).collect();
        assert!(x[0] < x[1] && x[1] < x[3] && x[2] == x[0], "{x:?}");
        assert_eq!(layout.slots[4], Slot::Lane);
        assert_eq!(layout.centres[4].0, x[1]);
        let apart = (layout.centres[4].1 - layout.centres[1].1).abs();
        assert!(apart >= (BOX.1 + LANE) / 2.0, "{apart}");
    }

    #[test]
    fn edges_that_others_imply_are_left_out() {
        let nodes = [node(&[]), node(&[0]), node(&[0, 1]), node(&[0, 2])];
        assert_eq!([direct(&nodes, 2), direct(&nodes, 3)], [vec![1], vec![2]]);
        assert_eq!(direct(&[node(&[]), node(&[]), node(&[0, 1])], 2), [0, 1]);
    }

    #[test]
    fn two_chains_do_not_cross() {
        // Given in an order that crosses.
        let nodes = [node(&[]), node(&[]), node(&[1]), node(&[0])];
        let layout = Layout::of(&nodes);
        let y = |slot: usize| layout.centres[slot].1;
        assert_eq!(y(0) < y(1), y(3) < y(2));
    }

    proptest! {
        #[test]
        fn boxes_of_any_graph_are_apart(picks in prop::collection::vec(prop::collection::vec(0usize..30, 0..4), 1..30)) {
            let nodes: Vec<Node> = picks
                .iter()
                .enumerate()
                .map(|(at, needs)| node(&needs.iter().copied().filter(|need| *need < at).collect::<Vec<_>>()))
                .collect();
            let layout = Layout::of(&nodes);
            let boxes: Vec<(f64, f64)> = (0..nodes.len()).map(|slot| layout.centres[slot]).collect();
            for (at, a) in boxes.iter().enumerate() {
                for b in &boxes[at + 1..] {
                    prop_assert!((a.0 - b.0).abs() >= BOX.0 || (a.1 - b.1).abs() >= BOX.1);
                }
            }
            prop_assert!(draw(&nodes, super::super::PAPER).contains("</svg>"));
        }
    }
}
