//! Fingerprints: the value of an answer in a finite field.
//!
//! Sums, products, quotients, integer powers and roots of rationals are mapped by a ring
//! homomorphism; variables and π, e go to fixed pseudo-random elements; every other construct
//! goes to a hash of its operator and its parts' values. So two answers that are equal by the
//! laws of fields alone have equal fingerprints, whatever their form (Schwartz–Zippel).

use super::ast::{Const, Delim, Digits, Expr, Func, Num};
use super::field::{Fp2, PRIMES, Prime, mix};

/// What a fingerprint is worth.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flags {
    /// Some construct went to a hash: unequal fingerprints decide nothing.
    pub opaque: bool,
    /// A root's branch was chosen blindly: equal fingerprints need a numerical check.
    pub branch: bool,
    /// A decimal literal occurs.
    pub decimal: bool,
    /// Something was divided by zero.
    pub undefined: bool,
    /// A variable occurs.
    pub variable: bool,
}

/// Evaluates answers in one prime's field, at one point.
pub(crate) struct Eval {
    f: Prime,
    seed: u64,
    pub flags: Flags,
    /// Work done, in units of about ten nanoseconds.
    pub steps: u64,
}

/// Most work of one evaluation on factorials and binomial coefficients.
const MAX_STEPS: u64 = 50_000;

/// The fingerprints of `e` modulo both primes.
pub(crate) fn fingerprint(e: &Expr) -> ([Fp2; 2], Flags) {
    let mut a = Eval::new(0, 0);
    let mut b = Eval::new(1, 0);
    let v = [a.value(e), b.value(e)];
    (v, a.flags)
}

impl Eval {
    /// An evaluation modulo prime 0 or 1 with the variables of point `seed`.
    pub fn new(prime: usize, seed: u64) -> Eval {
        Eval { f: PRIMES[prime & 1], seed, flags: Flags::default(), steps: 0 }
    }

    /// The field.
    pub fn field(&self) -> Prime {
        self.f
    }

    fn num(&mut self, n: &Num) -> Fp2 {
        self.flags.decimal |= n.decimal;
        let f = self.f;
        let m = match &n.digits {
            Digits::Small(v) => f.int(*v),
            Digits::Big(s) => {
                let ten = f.int(1_000_000_000_000_000_000);
                s.as_bytes().chunks(18).fold(f.int(0), |acc, c| {
                    let v = c.iter().fold(0u64, |v, d| v * 10 + (d - b'0') as u64);
                    let scale = if c.len() == 18 { ten } else { f.int(10u64.pow(c.len() as u32)) };
                    f.add(f.mul(acc, scale), f.int(v))
                })
            }
        };
        match n.exp10 {
            0 => m,
            e => match f.pow(f.int(10), e as i128) {
                Some(s) => f.mul(m, s),
                None => m,
            },
        }
    }

    /// The value of `e`.
    pub fn value(&mut self, e: &Expr) -> Fp2 {
        let f = self.f;
        self.steps += 3;
        match e {
            Expr::Num(n) => self.num(n),
            Expr::Sym(s) => {
                self.flags.variable = true;
                f.random_square(mix(*s) ^ self.seed)
            }
            Expr::Const(c) => match c {
                Const::I => f.i(),
                Const::Pi => f.random_square(0x7069),
                Const::E => f.random_square(0x65),
                c => self.hash(0x100 + *c as u64, &[]),
            },
            Expr::Add(v) => v.iter().fold(f.int(0), |a, e| {
                let x = self.value(e);
                f.add(a, x)
            }),
            Expr::Mul(v) => v.iter().fold(f.one(), |a, e| {
                let x = self.value(e);
                f.mul(a, x)
            }),
            Expr::Neg(a) => {
                let x = self.value(a);
                f.neg(x)
            }
            Expr::Div(p) => {
                let n = self.value(&p.0);
                let d = self.value(&p.1);
                self.steps += 40;
                match f.inv(d) {
                    Some(i) => f.mul(n, i),
                    None => {
                        self.flags.undefined = true;
                        self.hash(1, &[n, d])
                    }
                }
            }
            Expr::Pow(p) => self.power(&p.0, &p.1),
            Expr::Func(func, args) => self.function(*func, args),
            Expr::Degree(a) => {
                let x = self.value(a);
                let h = f.mul(x, f.random_square(0x7069));
                match f.inv(f.int(180)) {
                    Some(i) => f.mul(h, i),
                    None => h,
                }
            }
            Expr::Percent(a) => self.hash_of(2, std::slice::from_ref(&**a)),
            Expr::Pm(up, a) => self.hash_of(3 + *up as u64, std::slice::from_ref(&**a)),
            Expr::Based(d, b) => {
                let h = super::ast::hash_name(d.trim_start_matches('0').as_bytes());
                self.hash(mix(h ^ *b as u64), &[])
            }
            Expr::Ratio(v, _) => self.hash_of(5, v),
            Expr::Group(open, close, v) => {
                let kind = 0x200 + (*open as u64) * 8 + *close as u64;
                if *open == Delim::Brace { self.unordered(kind, v) } else { self.hash_of(kind, v) }
            }
            Expr::SetBuilder(p) => self.hash_pair(6, p),
            Expr::Matrix(columns, v) => self.hash_of(0x300 + *columns as u64, v),
            Expr::Union(v) => self.unordered(7, v),
            Expr::Inter(v) => self.unordered(8, v),
            Expr::SetMinus(p) => self.hash_pair(9, p),
            Expr::Relation(v, rels) => {
                let kind = rels.iter().fold(10, |h, r| mix(h ^ rel_code(*r)));
                self.hash_of(kind, v)
            }
            Expr::List(_, v) => self.hash_of(11, v),
            Expr::Word(w) => self.hash(super::ast::hash_name(w.as_bytes()), &[]),
            Expr::Phrase(v) => self.hash_of(12, v),
            Expr::WithUnit(a, u) => {
                let kind = mix(13 ^ super::ast::hash_name(u.text.as_bytes()));
                self.hash_of(kind, std::slice::from_ref(&**a))
            }
            Expr::Opaque(h, v) => self.hash_of(mix(*h), v),
        }
    }

    /// Whether `n` more steps may be taken; if so, they are.
    fn afford(&mut self, n: u64) -> bool {
        let ok = self.steps + n <= MAX_STEPS;
        self.steps += if ok { n } else { 0 };
        ok
    }

    fn hash(&mut self, kind: u64, values: &[Fp2]) -> Fp2 {
        self.flags.opaque = true;
        let h = values.iter().fold(mix(kind), |h, v| mix(mix(h ^ v.re) ^ v.im.rotate_left(17)));
        self.f.random2(h)
    }

    fn hash_of(&mut self, kind: u64, parts: &[Expr]) -> Fp2 {
        let values: Vec<Fp2> = parts.iter().map(|p| self.value(p)).collect();
        self.hash(kind, &values)
    }

    fn hash_pair(&mut self, kind: u64, p: &(Expr, Expr)) -> Fp2 {
        let values = [self.value(&p.0), self.value(&p.1)];
        self.hash(kind, &values)
    }

    fn unordered(&mut self, kind: u64, parts: &[Expr]) -> Fp2 {
        let mut values: Vec<Fp2> = parts.iter().map(|p| self.value(p)).collect();
        values.sort_unstable_by_key(|v| (v.re, v.im));
        self.hash(kind, &values)
    }

    fn power(&mut self, base: &Expr, exponent: &Expr) -> Fp2 {
        let f = self.f;
        if let Some((n, d)) = super::exact::small_rational(exponent) {
            let b = self.value(base);
            if d == 1 {
                return match f.pow(b, n) {
                    Some(v) => v,
                    None => {
                        self.flags.undefined = true;
                        self.hash(14, &[b])
                    }
                };
            }
            if let Ok(d) = u32::try_from(d) {
                let r = self.root(base, b, d);
                if let Some(v) = r.and_then(|r| f.pow(r, n)) {
                    return v;
                }
            }
            let e = self.value(exponent);
            return self.hash(15, &[b, e]);
        }
        let b = self.value(base);
        let e = self.value(exponent);
        self.hash(15, &[b, e])
    }

    /// The `n`-th root of `base` whose value is `v`.
    fn root(&mut self, base: &Expr, v: Fp2, n: u32) -> Option<Fp2> {
        let f = self.f;
        if let Some((num, den)) = super::exact::small_rational(base) {
            if num == 0 {
                return Some(f.int(0));
            }
            let odd = n % 2 == 1;
            if num < 0 && !(odd || n == 2) {
                return None;
            }
            // ⁿ√(a/b) = ⁿ√(a·bⁿ⁻¹) / b, prime by prime so that roots multiply.
            let (a, b) = (num.unsigned_abs(), den.unsigned_abs());
            let top = self.root_int(a, n)?;
            let bottom = self.root_int(b, n)?;
            let r = f.mul(top, f.inv(bottom)?);
            return Some(match (num < 0, odd) {
                (true, true) => f.neg(r),
                (true, false) => f.mul(r, f.i()),
                _ => r,
            });
        }
        // A plain variable is a square and stands for a positive number; anything else has a
        // branch to choose.
        if !matches!(base, Expr::Sym(_) | Expr::Const(Const::Pi | Const::E)) {
            self.flags.branch = true;
            self.flags.opaque = true;
        }
        f.root(v, n)
    }

    /// A root that the field lacks: the same hash as the power with exponent `1/n`.
    fn root_hash(&mut self, v: Fp2, n: Fp2) -> Fp2 {
        let e = self.f.inv(n).unwrap_or(n);
        self.hash(15, &[v, e])
    }

    fn root_int(&mut self, mut m: u128, n: u32) -> Option<Fp2> {
        let f = self.f;
        self.steps += 300;
        let mut r = f.one();
        let mut q = 2u128;
        while q * q <= m && q < 1000 {
            while m.is_multiple_of(q) {
                m /= q;
                r = f.mul(r, f.root(f.int(q as u64), n)?);
            }
            q += if q == 2 { 1 } else { 2 };
        }
        if m > 1 {
            let m64 = u64::try_from(m).ok()?;
            let s = m64.isqrt();
            if s * s == m64 && s >= 1000 {
                let p = f.root(f.int(s), n)?;
                return Some(f.mul(r, f.mul(p, p)));
            }
            if m >= 1_000_000 {
                // Perhaps composite: its root may be written as a product elsewhere.
                self.flags.opaque = true;
                self.flags.branch = true;
            }
            r = f.mul(r, f.root(f.int(m64), n)?);
        }
        Some(r)
    }

    fn function(&mut self, func: Func, args: &[Expr]) -> Fp2 {
        let f = self.f;
        match (func, args) {
            (Func::Sqrt, [x]) => {
                let v = self.value(x);
                match self.root(x, v, 2) {
                    Some(r) => r,
                    None => self.root_hash(v, f.int(2)),
                }
            }
            (Func::Root, [n, x]) => {
                let v = self.value(x);
                let index = super::exact::small_rational(n).filter(|r| r.1 == 1 && (1..=64).contains(&r.0));
                match index.and_then(|(k, _)| self.root(x, v, k as u32)) {
                    Some(r) => r,
                    None => {
                        let n = self.value(n);
                        self.root_hash(v, n)
                    }
                }
            }
            (Func::Abs | Func::Floor | Func::Ceil, [x]) => {
                if let Some((n, d)) = super::exact::small_rational(x) {
                    let v = match func {
                        Func::Abs => (n.abs(), d),
                        Func::Floor => (n.div_euclid(d), 1),
                        _ => (-(-n).div_euclid(d), 1),
                    };
                    let top = f.int128(v.0);
                    return f.inv(f.int128(v.1)).map_or(top, |i| f.mul(top, i));
                }
                self.hash_of(0x400 + func as u64, args)
            }
            (Func::Factorial | Func::DoubleFactorial, [x]) => match super::exact::small_rational(x) {
                Some((n @ 0..=5000, 1)) if self.afford(n as u64) => {
                    let step = if func == Func::Factorial { 1 } else { 2 };
                    (1..=n as u64).rev().step_by(step).fold(f.one(), |a, k| f.mul(a, f.int(k)))
                }
                _ => self.hash_of(0x400 + func as u64, args),
            },
            (Func::Binom, [n, k]) => {
                match (super::exact::small_rational(n), super::exact::small_rational(k)) {
                    (Some((n, 1)), Some((k, 1))) if (0..=100_000).contains(&n) && (0..=n).contains(&k) => {
                        let k = k.min(n - k);
                        if k > 5000 || !self.afford(2 * k as u64) {
                            return self.hash_of(0x400 + func as u64, args);
                        }
                        let (mut top, mut bottom) = (f.one(), f.one());
                        for j in 0..k {
                            top = f.mul(top, f.int((n - j) as u64));
                            bottom = f.mul(bottom, f.int((j + 1) as u64));
                        }
                        f.inv(bottom).map_or(top, |i| f.mul(top, i))
                    }
                    _ => self.hash_of(0x400 + func as u64, args),
                }
            }
            (Func::Min | Func::Max | Func::Gcd | Func::Lcm, v) => self.unordered(0x400 + func as u64, v),
            _ => self.hash_of(0x400 + func as u64, args),
        }
    }
}

fn rel_code(r: super::ast::Rel) -> u64 {
    use super::ast::Rel::*;
    match r {
        Eq | Approx => 1,
        Ne => 2,
        Lt => 3,
        Le => 4,
        Gt => 5,
        Ge => 6,
        In => 7,
        NotIn => 8,
        To => 9,
        Other(h) => h,
    }
}
