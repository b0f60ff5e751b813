//! Numeric evaluation at seeded complex points, with a running bound of the rounding error.

use super::complex::C;
use super::expr::{Arena, Const, Fun, Id, Node};

/// Value of an expression at a point.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// The value and a bound of its rounding error.
    Number { z: C, err: f64 },
    /// No finite value: division by zero, overflow, infinity.
    Undefined,
}

/// What stands below a node.
#[derive(Clone, Copy, Default)]
struct Flags {
    symbolic: bool,
    float: bool,
}

/// Evaluates one arena, node by node.
pub struct Evaluator<'a> {
    arena: &'a Arena,
    values: Vec<Value>,
    flags: Vec<Flags>,
}

const EPS: f64 = f64::EPSILON;

impl<'a> Evaluator<'a> {
    /// An evaluator of `arena` as it is now.
    pub fn new(arena: &'a Arena) -> Self {
        let mut flags: Vec<Flags> = Vec::with_capacity(arena.nodes.len());
        for node in &arena.nodes {
            let of = |id: Id| flags[id as usize];
            let both = |a: Id, b: Id| Flags {
                symbolic: of(a).symbolic || of(b).symbolic,
                float: of(a).float || of(b).float,
            };
            let here = match *node {
                Node::Num(_) | Node::Const(_) | Node::Infinity => Flags::default(),
                Node::Float(_) => Flags { symbolic: false, float: true },
                Node::Sym(_) => Flags { symbolic: true, float: false },
                Node::Add(a, b)
                | Node::Mul(a, b)
                | Node::Pow(a, b)
                | Node::Log(a, b)
                | Node::Binomial(a, b) => both(a, b),
                Node::Neg(a) | Node::Fun(_, a) => of(a),
                Node::Apply(_, s, e) => Flags {
                    symbolic: true,
                    float: arena.args[s as usize..e as usize].iter().any(|&a| of(a).float),
                },
            };
            flags.push(here);
        }
        Evaluator { arena, values: Vec::with_capacity(arena.nodes.len()), flags }
    }

    /// Whether a symbol or an unknown function stands below the node.
    pub fn symbolic(&self, id: Id) -> bool {
        self.flags[id as usize].symbolic
    }

    /// Whether a decimal number stands below the node.
    pub fn float(&self, id: Id) -> bool {
        self.flags[id as usize].float
    }

    /// The node's value at one of the seeded points.
    pub fn at(&mut self, point: u32, id: Id) -> Value {
        self.values.clear();
        for node in &self.arena.nodes[..=id as usize] {
            let v = self.node(*node, point);
            self.values.push(v);
        }
        self.values[id as usize]
    }

    /// The value of an earlier node at the point of the last call of [`Self::at`].
    pub fn again(&self, id: Id) -> Value {
        self.values[id as usize]
    }

    /// What the node is the inverse of, if it is one.
    fn inverted(&self, id: Id) -> Option<Id> {
        match self.arena.nodes[id as usize] {
            Node::Pow(base, e) if matches!(self.arena.nodes[e as usize], Node::Num(-1.0)) => Some(base),
            _ => None,
        }
    }

    /// The logarithm. sympy splits off positive factors but does not know in which branch a
    /// symbol's logarithm lies, so each direction in the plane gets an offset of its own.
    fn ln(&self, of: Id, (x, ex): (C, f64)) -> Option<(C, f64)> {
        let (z, err) = function(Fun::Ln, (x, ex))?;
        if !self.flags[of as usize].symbolic {
            return Some((z, err));
        }
        let direction = x / C::real(x.norm());
        Some((z + symbol(mix(0x10c, direction), 0), err))
    }

    fn node(&self, node: Node, point: u32) -> Value {
        let get = |id: Id| match self.values[id as usize] {
            Value::Number { z, err } => Some((z, err)),
            Value::Undefined => None,
        };
        let value = match node {
            Node::Num(n) | Node::Float(n) => Some((C::real(n), 0.0)),
            Node::Const(Const::Pi) => Some((C::real(std::f64::consts::PI), EPS)),
            Node::Const(Const::E) => Some((C::real(std::f64::consts::E), EPS)),
            Node::Const(Const::I) => Some((C::new(0.0, 1.0), 0.0)),
            Node::Infinity => Some((symbol(0x1f, point), 0.0)),
            Node::Sym(h) => Some((symbol(h, point), 0.0)),
            Node::Neg(a) => get(a).map(|(z, e)| (-z, e)),
            Node::Add(a, b) => {
                both(get(a), get(b)).map(|((x, ex), (y, ey))| (x + y, ex + ey + EPS * (x + y).size()))
            }
            // One rounding, as a quotient has.
            Node::Mul(a, b) if let Some(c) = self.inverted(b) => {
                both(get(a), get(c)).and_then(|(x, y)| quotient(x, y))
            }
            Node::Mul(a, b) => both(get(a), get(b)).map(|((x, ex), (y, ey))| {
                let z = x * y;
                (z, x.size() * ey + y.size() * ex + 2.0 * EPS * z.size())
            }),
            Node::Pow(a, b) => both(get(a), get(b)).and_then(|(x, y)| {
                let (z, err) = power(x, y)?;
                // sympy does not see that 45.0 and 45 to an unknown power are the same.
                let float = self.flags[a as usize].float && !self.flags[a as usize].symbolic;
                let apart = float && self.flags[b as usize].symbolic;
                Some((if apart { z * symbol(mix(0x0f10, x.0), 0) } else { z }, err))
            }),
            // exp and log cancel before anything else.
            Node::Fun(Fun::Exp, a) if let Node::Fun(Fun::Ln, x) = self.arena.nodes[a as usize] => get(x),
            Node::Fun(Fun::Ln, a) => get(a).and_then(|x| self.ln(a, x)),
            Node::Fun(f, a) => get(a).and_then(|x| function(f, x)),
            Node::Log(a_id, b_id) => {
                both(get(a_id), get(b_id)).and_then(|(x, b)| quotient(self.ln(a_id, x)?, self.ln(b_id, b)?))
            }
            Node::Binomial(n, k) => both(get(n), get(k)).and_then(|((n, en), (k, ek))| {
                let z = n.binomial(k)?;
                Some((z, z.norm() * (1e3 * EPS + en + ek)))
            }),
            Node::Apply(name, s, e) => {
                let mut hash = name;
                let mut defined = true;
                for &a in &self.arena.args[s as usize..e as usize] {
                    match get(a) {
                        Some((z, _)) => hash = mix(hash, z),
                        None => defined = false,
                    }
                }
                defined.then(|| (symbol(hash, 0), 0.0))
            }
        };
        match value {
            Some((z, err)) if z.is_finite() && err.is_finite() => Value::Number { z, err },
            _ => Value::Undefined,
        }
    }
}

fn both<T>(a: Option<T>, b: Option<T>) -> Option<(T, T)> {
    a.zip(b)
}

fn quotient((x, ex): (C, f64), (y, ey): (C, f64)) -> Option<(C, f64)> {
    if y.is_zero() {
        return None;
    }
    let z = x / y;
    Some((z, (ex + z.size() * ey) / y.norm() + 2.0 * EPS * z.size()))
}

fn power((x, ex): (C, f64), (y, ey): (C, f64)) -> Option<(C, f64)> {
    let z = x.pow(y)?;
    let size = z.norm();
    if x.is_zero() {
        return Some((z, ex.max(EPS * size)));
    }
    let grow = y.norm() * ex / x.norm() + x.ln().norm() * ey + (4.0 + y.norm()) * EPS;
    Some((z, size * grow))
}

fn function(f: Fun, (x, ex): (C, f64)) -> Option<(C, f64)> {
    let z = x.apply(f)?;
    // The derivative, by a small step along the error.
    let step = ex.max(EPS * x.norm());
    let near = if matches!(f, Fun::Floor | Fun::Ceiling) { None } else { (x + C::real(step)).apply(f) };
    let slope = near.map_or(0.0, |n| (n - z).norm());
    Some((z, 2.0 * slope + 8.0 * EPS * z.norm()))
}

/// A symbol's value at a point, in any quadrant; some points lie further out than others.
fn symbol(hash: u64, point: u32) -> C {
    const REACH: [f64; 6] = [1.0, 2.0, 0.7, 3.0, 1.5, 5.0];
    let a = scramble(hash.wrapping_add(u64::from(point + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let b = scramble(a);
    let size = |h: u64| {
        let size = 0.3 + (h >> 11) as f64 / (1u64 << 53) as f64;
        let size = size * REACH[point as usize % REACH.len()];
        if h & 1 == 1 { -size } else { size }
    };
    C::new(size(a), size(b))
}

fn scramble(mut h: u64) -> u64 {
    h = (h ^ (h >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ (h >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ (h >> 31)
}

/// Mixes a value into a hash, to nine digits.
fn mix(hash: u64, z: C) -> u64 {
    let part = |x: f64| {
        if x.abs() < 1e-12 {
            return 0;
        }
        let digits = 9 - x.abs().log10().ceil() as i32;
        let scale = 10f64.powi(digits.clamp(-300, 300));
        ((x * scale).round() / scale).to_bits()
    };
    scramble(scramble(hash ^ part(z.re)).wrapping_add(part(z.im)))
}
