//! The tree of a parsed answer.

/// A decimal literal, exact: `mantissa · 10^exp10`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Num {
    /// Decimal digits without leading zeros ("0" for zero); at most [`MAX_DIGITS`].
    pub digits: Digits,
    /// Power of ten.
    pub exp10: i32,
    /// Written with a decimal point or in scientific notation.
    pub decimal: bool,
}

/// Digits of a literal, inline when they fit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Digits {
    /// Up to 19 digits.
    Small(u64),
    /// More digits, as text.
    Big(Box<str>),
}

/// Longest literal kept as a number.
pub(crate) const MAX_DIGITS: usize = 2000;

impl Num {
    /// A small integer.
    pub fn int(v: u64) -> Num {
        Num { digits: Digits::Small(v), exp10: 0, decimal: false }
    }

    /// The value when it is an integer of at most 64 bits written without a point.
    pub fn as_u64(&self) -> Option<u64> {
        match self.digits {
            Digits::Small(v) if self.exp10 == 0 => Some(v),
            _ => None,
        }
    }

    /// Number of significant digits written (leading zeros do not count, trailing ones do).
    pub fn significant(&self) -> usize {
        match &self.digits {
            Digits::Small(0) => 0,
            Digits::Small(v) => v.ilog10() as usize + 1,
            Digits::Big(s) => s.len(),
        }
    }
}

/// A symbol's identity: the character for a plain letter, else a hash of its name with
/// subscripts and decorations.
pub(crate) type Sym = u64;

/// Named constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Const {
    Pi,
    E,
    I,
    Inf,
    /// ∅
    Empty,
    /// ℝ
    Reals,
}

/// Functions with a fixed meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Func {
    Sin,
    Cos,
    Tan,
    Cot,
    Sec,
    Csc,
    Asin,
    Acos,
    Atan,
    Acot,
    Asec,
    Acsc,
    Sinh,
    Cosh,
    Tanh,
    Coth,
    Sech,
    Csch,
    Asinh,
    Acosh,
    Atanh,
    /// Natural logarithm.
    Ln,
    /// Logarithm to a base: `[base, x]`.
    LogBase,
    /// `log` without a base: natural or common, as the other side needs.
    Log,
    Exp,
    /// cos θ + i sin θ
    Cis,
    Abs,
    Floor,
    Ceil,
    Factorial,
    /// `n!!`: every second factor.
    DoubleFactorial,
    /// Binomial coefficient: `[n, k]`.
    Binom,
    /// `[index, x]`.
    Root,
    Sqrt,
    Min,
    Max,
    Gcd,
    Lcm,
    /// Determinant of a matrix.
    Det,
    Re,
    Im,
}

/// Relations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rel {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
    /// ≈: read as `=` with a stated approximation.
    Approx,
    /// → as in `x \to 3`.
    To,
    /// Any other relation, by a hash of its name.
    Other(u64),
}

impl Rel {
    /// The relation read from right to left, where that is a relation of ours.
    pub fn flip(self) -> Option<Rel> {
        Some(match self {
            Rel::Lt => Rel::Gt,
            Rel::Le => Rel::Ge,
            Rel::Gt => Rel::Lt,
            Rel::Ge => Rel::Le,
            Rel::Eq | Rel::Ne | Rel::Approx => self,
            _ => return None,
        })
    }

    /// `<`, `≤`, `>` or `≥`.
    pub fn is_order(self) -> bool {
        matches!(self, Rel::Lt | Rel::Le | Rel::Gt | Rel::Ge)
    }
}

/// Bracket kinds of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delim {
    Paren,
    Square,
    /// `\{ … \}`, or `{ … }` with commas inside.
    Brace,
    /// `\langle … \rangle`
    Angle,
}

/// What joins the items of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sep {
    Comma,
    And,
    Or,
}

/// A unit of measure as written, in canonical words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unit {
    /// Canonical text, e.g. `m^2`, `dollar`, `km/hour`, `apple`.
    pub text: Box<str>,
    /// When the unit could as well be a variable (`245 m`), that variable.
    pub ambiguous: Option<Sym>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expr {
    Num(Num),
    Sym(Sym),
    Const(Const),
    Add(Vec<Expr>),
    Mul(Vec<Expr>),
    Neg(Box<Expr>),
    Div(Box<(Expr, Expr)>),
    Pow(Box<(Expr, Expr)>),
    Func(Func, Vec<Expr>),
    /// `±x` (true) or `∓x` (false).
    Pm(bool, Box<Expr>),
    Percent(Box<Expr>),
    Degree(Box<Expr>),
    /// Digits with a base: `1021_4`.
    Based(Box<str>, u32),
    /// `a:b(:c)*`; the flag says that the parts are written like a time of day.
    Ratio(Vec<Expr>, bool),
    /// Brackets around items; opening and closing kinds may differ (`[a,b)`).
    Group(Delim, Delim, Vec<Expr>),
    /// `{ x | condition }`
    SetBuilder(Box<(Expr, Expr)>),
    /// Rows of equal length, row-major, with the number of columns.
    Matrix(usize, Vec<Expr>),
    Union(Vec<Expr>),
    Inter(Vec<Expr>),
    SetMinus(Box<(Expr, Expr)>),
    /// `e0 r0 e1 r1 e2 …`
    Relation(Vec<Expr>, Vec<Rel>),
    List(Sep, Vec<Expr>),
    /// A lower-case word.
    Word(Box<str>),
    /// Words and formulas in order.
    Phrase(Vec<Expr>),
    WithUnit(Box<Expr>, Unit),
    /// An operator that is only compared part by part (`\sum`, `\int`, `f(…)`, primes …).
    Opaque(u64, Vec<Expr>),
}

impl Expr {
    /// A small integer.
    pub fn int(v: u64) -> Expr {
        Expr::Num(Num::int(v))
    }

    /// `a / b`
    pub fn div(a: Expr, b: Expr) -> Expr {
        Expr::Div(Box::new((a, b)))
    }

    /// `a ^ b`
    pub fn pow(a: Expr, b: Expr) -> Expr {
        Expr::Pow(Box::new((a, b)))
    }

    /// `−a`; percentages and degrees take the sign inside, so that they stay what they are.
    pub fn neg(a: Expr) -> Expr {
        match a {
            Expr::Percent(x) => Expr::Percent(Box::new(Expr::neg(*x))),
            Expr::Degree(x) => Expr::Degree(Box::new(Expr::neg(*x))),
            a => Expr::Neg(Box::new(a)),
        }
    }

    /// Whether `f` holds for this node or one below it.
    pub fn any(&self, f: &mut dyn FnMut(&Expr) -> bool) -> bool {
        use Expr::*;
        f(self)
            || match self {
                Num(_) | Sym(_) | Const(_) | Based(..) | Word(_) => false,
                Neg(a) | Pm(_, a) | Percent(a) | Degree(a) | WithUnit(a, _) => a.any(f),
                Div(p) | Pow(p) | SetBuilder(p) | SetMinus(p) => p.0.any(f) || p.1.any(f),
                Add(v)
                | Mul(v)
                | Func(_, v)
                | Ratio(v, _)
                | Group(_, _, v)
                | Matrix(_, v)
                | Union(v)
                | Inter(v)
                | Relation(v, _)
                | List(_, v)
                | Phrase(v)
                | Opaque(_, v) => v.iter().any(|c| c.any(f)),
            }
    }

    /// The same tree with the nodes replaced for which `f` gives something else.
    pub fn rebuild(&self, f: &mut dyn FnMut(&Expr) -> Option<Expr>) -> Expr {
        use Expr::*;
        if let Some(e) = f(self) {
            return e;
        }
        let mut all = |v: &[Expr]| v.iter().map(|x| x.rebuild(f)).collect::<Vec<_>>();
        let pair = |mut v: Vec<Expr>| {
            let b = v.pop().unwrap_or(Const(self::Const::Empty));
            Box::new((v.pop().unwrap_or(Const(self::Const::Empty)), b))
        };
        let one = |mut v: Vec<Expr>| Box::new(v.pop().unwrap_or(Const(self::Const::Empty)));
        let parts = |p: &(Expr, Expr)| [p.0.clone(), p.1.clone()];
        match self {
            Num(_) | Sym(_) | Const(_) | Based(..) | Word(_) => self.clone(),
            Add(v) => Add(all(v)),
            Mul(v) => Mul(all(v)),
            Func(k, v) => Func(*k, all(v)),
            Ratio(v, clock) => Ratio(all(v), *clock),
            Group(o, c, v) => Group(*o, *c, all(v)),
            Matrix(n, v) => Matrix(*n, all(v)),
            Union(v) => Union(all(v)),
            Inter(v) => Inter(all(v)),
            Relation(v, r) => Relation(all(v), r.clone()),
            List(s, v) => List(*s, all(v)),
            Phrase(v) => Phrase(all(v)),
            Opaque(h, v) => Opaque(*h, all(v)),
            Neg(x) => Neg(one(all(std::slice::from_ref(x)))),
            Pm(up, x) => Pm(*up, one(all(std::slice::from_ref(x)))),
            Percent(x) => Percent(one(all(std::slice::from_ref(x)))),
            Degree(x) => Degree(one(all(std::slice::from_ref(x)))),
            WithUnit(x, u) => WithUnit(one(all(std::slice::from_ref(x))), u.clone()),
            Div(p) => Div(pair(all(&parts(p)))),
            Pow(p) => Pow(pair(all(&parts(p)))),
            SetBuilder(p) => SetBuilder(pair(all(&parts(p)))),
            SetMinus(p) => SetMinus(pair(all(&parts(p)))),
        }
    }

    /// Whether no variable occurs.
    pub fn is_constant(&self) -> bool {
        !self.any(&mut |e| matches!(e, Expr::Sym(_) | Expr::Opaque(..) | Expr::Word(_)))
    }
}

/// FNV-1a, for names.
pub(crate) fn hash_name(bytes: &[u8]) -> u64 {
    let mut h = 0xcbf2_9ce4_8422_2325u64;
    for b in bytes {
        h = (h ^ *b as u64).wrapping_mul(0x0100_0000_01b3);
    }
    h | 1 << 63
}
