//! Real evaluation beyond the range of a float: powers, factorials and binomials of competition
//! answers such as `\binom{4048}{2024}`.

use super::expr::{Arena, Const, Fun, Id, Node};

/// `m · 2^e` with `m` between 1 and 2 in size, or zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wide {
    m: f64,
    e: i64,
}

/// Largest power of two that is followed: what sympy still computes within its time limit.
const MAX_LOG2: f64 = 67_108_864.0;

impl Wide {
    fn new(m: f64, e: i64) -> Option<Self> {
        if m == 0.0 {
            return Some(Wide { m, e: 0 });
        }
        if !m.is_finite() || (e as f64).abs() > MAX_LOG2 {
            return None;
        }
        let shift = m.abs().log2().floor();
        Some(Wide { m: m * (-shift).exp2(), e: e + shift as i64 })
    }

    fn from_log2(log2: f64) -> Option<Self> {
        if log2.is_nan() || log2.abs() > MAX_LOG2 {
            return None;
        }
        Self::new((log2 - log2.floor()).exp2(), log2.floor() as i64)
    }

    fn log2(self) -> f64 {
        self.m.abs().log2() + self.e as f64
    }

    /// The nearest float; infinite beyond its range.
    pub fn to_f64(self) -> f64 {
        self.m * (self.e.clamp(-2000, 2000) as f64).exp2()
    }

    fn neg(self) -> Self {
        Wide { m: -self.m, e: self.e }
    }

    fn mul(self, o: Self) -> Option<Self> {
        Self::new(self.m * o.m, self.e + o.e)
    }

    fn add(self, o: Self) -> Option<Self> {
        let (big, small) = if self.m == 0.0 || (o.m != 0.0 && o.e > self.e) { (o, self) } else { (self, o) };
        let gap = (small.e - big.e).max(-2000) as f64;
        Self::new(big.m + small.m * gap.exp2(), big.e)
    }

    fn pow(self, exponent: Self) -> Option<Self> {
        let y = exponent.to_f64();
        if self.m == 0.0 {
            return (y > 0.0).then_some(self);
        }
        let whole = y == y.trunc();
        if self.m < 0.0 && !whole {
            return None;
        }
        let size = Self::from_log2(self.log2() * y)?;
        Some(if self.m < 0.0 && y % 2.0 != 0.0 { size.neg() } else { size })
    }

    /// Whether two numbers agree to a relative 1e-4, as floats do that overflow to infinity.
    pub fn close(self, o: Self) -> bool {
        let (a, b) = (self.to_f64(), o.to_f64());
        if a.is_infinite() || b.is_infinite() {
            return a == b;
        }
        let gap = (o.e - self.e).clamp(-2000, 2000) as f64;
        let o = o.m * gap.exp2();
        (self.m - o).abs() <= 1e-4 * self.m.abs().max(o.abs())
    }
}

/// log2 Γ(x) for x > 0, by Stirling's series.
fn log2_gamma(x: f64) -> f64 {
    let (mut x, mut shift) = (x, 0.0);
    while x < 16.0 {
        shift += x.ln();
        x += 1.0;
    }
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    let half_log_two_pi = 0.918_938_533_204_672_7;
    ((x - 0.5) * x.ln() - x + half_log_two_pi + series - shift) / std::f64::consts::LN_2
}

/// The value of a real expression without symbols; `None` where it has none.
pub fn evaluate(arena: &Arena, id: Id) -> Option<Wide> {
    let mut values: Vec<Option<Wide>> = Vec::with_capacity(id as usize + 1);
    for node in &arena.nodes[..=id as usize] {
        let get = |id: Id| values[id as usize];
        let value = match *node {
            Node::Num(n) | Node::Float(n) => Wide::new(n, 0),
            Node::Const(Const::Pi) => Wide::new(std::f64::consts::PI, 0),
            Node::Const(Const::E) => Wide::new(std::f64::consts::E, 0),
            Node::Neg(a) => get(a).map(Wide::neg),
            Node::Add(a, b) => get(a).zip(get(b)).and_then(|(a, b)| a.add(b)),
            Node::Mul(a, b) => get(a).zip(get(b)).and_then(|(a, b)| a.mul(b)),
            Node::Pow(a, b) => get(a).zip(get(b)).and_then(|(a, b)| a.pow(b)),
            Node::Fun(Fun::Factorial, a) => {
                let n = get(a).map(Wide::to_f64).filter(|n| *n >= 0.0 && *n < 1e8);
                n.and_then(|n| Wide::from_log2(log2_gamma(n + 1.0)))
            }
            Node::Fun(Fun::Abs, a) => get(a).map(|a| Wide { m: a.m.abs(), e: a.e }),
            Node::Fun(Fun::Exp, a) => {
                get(a).and_then(|a| Wide::from_log2(a.to_f64() / std::f64::consts::LN_2))
            }
            Node::Fun(Fun::Ln, a) => {
                get(a).filter(|a| a.m > 0.0).and_then(|a| Wide::new(a.log2() * std::f64::consts::LN_2, 0))
            }
            Node::Log(a, b) => get(a)
                .zip(get(b))
                .filter(|(a, b)| a.m > 0.0 && b.m > 0.0)
                .and_then(|(a, b)| Wide::new(a.log2() / b.log2(), 0)),
            Node::Binomial(n, k) => get(n).zip(get(k)).and_then(|(n, k)| {
                let (n, k) = (n.to_f64(), k.to_f64());
                let fits = n == n.trunc() && k == k.trunc() && 0.0 <= k && k <= n && n < 1e8;
                let log2 = || log2_gamma(n + 1.0) - log2_gamma(k + 1.0) - log2_gamma(n - k + 1.0);
                if fits { Wide::from_log2(log2()) } else { None }
            }),
            _ => None,
        };
        values.push(value);
    }
    values[id as usize]
}
