//! The LaTeX commands and plain names that answers use.

use super::ast::{Const, Func, Rel, hash_name};

/// What a command means to the parser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cmd {
    Func(Func),
    Const(Const),
    /// A letter by another name (Greek, `\ell`, unknown commands).
    Symbol(u64),
    Rel(Rel),
    Frac,
    Sqrt,
    Cbrt,
    Binom,
    /// `{a \over b}`
    Over,
    /// `{n \choose k}`
    Choose,
    /// `\not`, before a relation.
    Not,
    Times,
    Divide,
    Pm,
    Mp,
    Cup,
    Cap,
    SetMinus,
    SetOpen,
    SetClose,
    AngleOpen,
    AngleClose,
    FloorOpen,
    FloorClose,
    CeilOpen,
    CeilClose,
    Norm,
    Mid,
    Circ,
    Prime,
    Dots,
    Begin(Env),
    End,
    /// `\overline`, `\bar`, `\dot`: repeating digits after a number, else a decoration.
    Repeat(u64),
    /// `\hat`, `\vec` …: a decoration of what follows.
    Accent(u64),
    /// `\sum`, `\int`, `\lim` …
    Big(u64),
    /// Binary operators of no fixed meaning (`\circ`, `\oplus`, `\bmod` …).
    Operator(u64),
    /// `\left`, `\bigl` …: nothing, but a `.` that follows is no point.
    Fence,
    TextStyle,
    Skip,
    Row,
    Char(char),
    /// `\operatorname`, `\begin`, `\end`: the lexer reads the name that follows.
    Named,
}

/// Environments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Env {
    Matrix,
    Det,
    /// `cases`, `aligned` …: rows are items.
    Rows,
}

/// The command called `name` (without backslash).
pub(crate) fn lookup(name: &str) -> Option<Cmd> {
    use Cmd::*;
    // The most frequent ones, before the long search.
    match name {
        "frac" => return Some(Frac),
        "left" | "right" => return Some(Fence),
        "sqrt" => return Some(Sqrt),
        "pi" => return Some(Const(self::Const::Pi)),
        "text" => return Some(TextStyle),
        _ => {}
    }
    if let Some(f) = function(name) {
        return Some(Func(f));
    }
    if let Some(c) = greek(name) {
        return Some(Symbol(c as u64));
    }
    Some(match name {
        "dfrac" | "tfrac" | "cfrac" => Frac,
        "cbrt" => Cbrt,
        "binom" | "dbinom" | "tbinom" => Binom,
        "over" => Over,
        "choose" => Choose,
        "not" => Not,
        "Pi" => Const(self::Const::Pi),
        "infty" | "infinity" | "inf" | "oo" => Const(self::Const::Inf),
        "emptyset" | "varnothing" | "O" => Const(self::Const::Empty),
        "cdot" | "times" | "ast" | "bullet" => Times,
        "div" => Divide,
        "pm" => Pm,
        "mp" => Mp,
        "cup" | "bigcup" => Cup,
        "cap" | "bigcap" => Cap,
        "setminus" | "backslash" | "smallsetminus" => SetMinus,
        "lbrace" => SetOpen,
        "rbrace" => SetClose,
        "langle" => AngleOpen,
        "rangle" => AngleClose,
        "lfloor" => FloorOpen,
        "rfloor" => FloorClose,
        "lceil" => CeilOpen,
        "rceil" => CeilClose,
        "vert" | "lvert" | "rvert" => Char('|'),
        "Vert" | "lVert" | "rVert" => Norm,
        "mid" => Mid,
        "lbrack" => Char('['),
        "rbrack" => Char(']'),
        "colon" => Char(':'),
        "degree" | "textdegree" | "degrees" => Circ,
        "circ" => Circ,
        "prime" => Prime,
        "ldots" | "dots" | "cdots" | "dotsc" | "dotsb" | "vdots" | "ddots" | "textellipsis" => Dots,
        "le" | "leq" | "leqslant" | "leslant" | "leqq" => Rel(self::Rel::Le),
        "ge" | "geq" | "geqslant" | "geslant" | "geqq" => Rel(self::Rel::Ge),
        "lt" => Rel(self::Rel::Lt),
        "gt" => Rel(self::Rel::Gt),
        "ne" | "neq" => Rel(self::Rel::Ne),
        "in" => Rel(self::Rel::In),
        "notin" => Rel(self::Rel::NotIn),
        "approx" | "approxeq" | "simeq" | "doteq" => Rel(self::Rel::Approx),
        "to" | "rightarrow" | "longrightarrow" => Rel(self::Rel::To),
        "equiv" | "sim" | "cong" | "propto" | "subset" | "subseteq" | "supset" | "supseteq" | "parallel"
        | "perp" | "implies" | "Rightarrow" | "iff" | "Leftrightarrow" | "mapsto" | "ll" | "gg" => {
            Rel(self::Rel::Other(hash_name(name.as_bytes())))
        }
        "overline" | "bar" | "dot" | "overset" => Repeat(hash_name(name.as_bytes())),
        "hat" | "vec" | "tilde" | "widehat" | "widetilde" | "overrightarrow" | "underline" | "ddot"
        | "overbrace" | "underbrace" | "mathring" | "check" => Accent(hash_name(name.as_bytes())),
        "sum" | "prod" | "int" | "iint" | "iiint" | "oint" | "lim" | "limsup" | "liminf" | "partial"
        | "nabla" | "forall" | "exists" | "neg" | "arg" | "deg" | "dim" | "ker" | "Pr" | "sup" | "inf_"
        | "sgn" | "tr" => Big(hash_name(name.as_bytes())),
        "oplus" | "otimes" | "bmod" | "mod" | "pmod" | "star" | "wedge" | "land" | "vee" | "lor" => {
            Operator(hash_name(name.as_bytes()))
        }
        "middle" | "big" | "Big" | "bigg" | "Bigg" | "bigl" | "bigr" | "Bigl" | "Bigr" | "biggl"
        | "biggr" | "Biggl" | "Biggr" | "bigm" => Fence,
        "textbf" | "textit" | "textrm" | "textsc" | "textsf" | "texttt" | "mbox" | "hbox" | "mathrm"
        | "mathbf" | "mathsf" | "mathit" | "mathtt" | "textnormal" | "rm" | "bf" | "it" | "boldsymbol"
        | "bm" | "emph" | "textup" | "textmd" | "textsuperscript" => TextStyle,
        "displaystyle" | "textstyle" | "scriptstyle" | "limits" | "nolimits" | "quad" | "qquad"
        | "thinspace" | "enspace" | "boxed" | "fbox" | "hline" | "nonumber" | "cal" | "mathcal"
        | "mathfrak" | "mathscr" | "displaylines" | "boxedsol" | "hfill" | "noindent" | "par"
        | "leavevmode" | "mathop" | "mathord" | "ensuremath" | "medspace" | "negthinspace" | "space"
        | "strut" | "smash" | "allowbreak" | "centering" => Skip,
        "newline" | "cr" | "tabularnewline" => Row,
        "textdollar" | "dollar" => Char('$'),
        "percent" | "textpercent" => Char('%'),
        "begin" | "end" | "operatorname" | "mathbb" => Named,
        _ => return None,
    })
}

/// Names that need no backslash (`sqrt(3)`, `pi`, `arctan x`).
pub(crate) fn plain_name(name: &str) -> Option<Cmd> {
    match name {
        "pi" | "sqrt" | "cbrt" | "infty" | "infinity" | "oo" | "infinite" => {
            lookup(name.trim_end_matches("ite"))
        }
        "Pi" => Some(Cmd::Const(Const::Pi)),
        "inf" | "Infinity" | "INF" => Some(Cmd::Const(Const::Inf)),
        "frac" | "dfrac" => Some(Cmd::Frac),
        "abs" => Some(Cmd::Func(Func::Abs)),
        "floor" => Some(Cmd::Func(Func::Floor)),
        "ceil" | "ceiling" => Some(Cmd::Func(Func::Ceil)),
        "binomial" => Some(Cmd::Func(Func::Binom)),
        "asin" => Some(Cmd::Func(Func::Asin)),
        "acos" => Some(Cmd::Func(Func::Acos)),
        "atan" => Some(Cmd::Func(Func::Atan)),
        "alpha" | "beta" | "gamma" | "delta" | "epsilon" | "theta" | "lambda" | "omega" | "sigma" | "phi"
        | "rho" | "tau" | "varphi" => lookup(name),
        "max" | "min" | "sec" | "det" | "Re" | "Im" | "lim" => None,
        _ => function(name).map(Cmd::Func),
    }
}

fn function(name: &str) -> Option<Func> {
    use Func::*;
    Some(match name {
        "sin" => Sin,
        "cos" => Cos,
        "tan" | "tg" => Tan,
        "cot" | "ctg" => Cot,
        "sec" => Sec,
        "csc" | "cosec" => Csc,
        "arcsin" => Asin,
        "arccos" => Acos,
        "arctan" | "arctg" => Atan,
        "arccot" => Acot,
        "arcsec" => Asec,
        "arccsc" => Acsc,
        "sinh" => Sinh,
        "cosh" => Cosh,
        "tanh" => Tanh,
        "coth" => Coth,
        "sech" => Sech,
        "csch" => Csch,
        "arcsinh" | "arsinh" | "asinh" => Asinh,
        "arccosh" | "arcosh" | "acosh" => Acosh,
        "arctanh" | "artanh" | "atanh" => Atanh,
        "ln" => Ln,
        "log" | "lg" => Log,
        "exp" => Exp,
        "cis" => Cis,
        "min" => Min,
        "max" => Max,
        "gcd" => Gcd,
        "lcm" => Lcm,
        "det" => Det,
        "Re" => Re,
        "Im" => Im,
        _ => return None,
    })
}

fn greek(name: &str) -> Option<char> {
    Some(match name {
        "alpha" => 'α',
        "beta" => 'β',
        "gamma" => 'γ',
        "Gamma" => 'Γ',
        "delta" => 'δ',
        "Delta" => 'Δ',
        "epsilon" | "varepsilon" => 'ε',
        "zeta" => 'ζ',
        "eta" => 'η',
        "theta" | "vartheta" => 'θ',
        "Theta" => 'Θ',
        "iota" => 'ι',
        "kappa" => 'κ',
        "lambda" => 'λ',
        "Lambda" => 'Λ',
        "mu" => 'μ',
        "nu" => 'ν',
        "xi" => 'ξ',
        "Xi" => 'Ξ',
        "rho" | "varrho" => 'ρ',
        "sigma" | "varsigma" => 'σ',
        "Sigma" => 'Σ',
        "tau" => 'τ',
        "phi" | "varphi" => 'φ',
        "Phi" => 'Φ',
        "chi" => 'χ',
        "psi" => 'ψ',
        "Psi" => 'Ψ',
        "omega" => 'ω',
        "Omega" => 'Ω',
        "ell" => 'ℓ',
        "hbar" => 'ħ',
        _ => return None,
    })
}

/// The longest proper prefix of an unknown command that is a command (`cdotx`, `pir`, `lex`).
pub(crate) fn known_prefix(name: &str) -> Option<(Cmd, usize)> {
    (2..name.len().min(14)).rev().find_map(|n| lookup(&name[..n]).map(|c| (c, n)))
}

/// The longest function name or `pi` at the start of a run of letters, leaving room for an
/// argument (`sinx`, `lnx`, `sqrtx`).
pub(crate) fn longest_function(run: &str) -> Option<(Cmd, usize)> {
    (2..=run.len().min(7)).rev().find_map(|n| match &run[..n] {
        "Re" | "Im" | "tg" | "lg" => None,
        "pi" => Some((Cmd::Const(Const::Pi), n)),
        "sqrt" => Some((Cmd::Sqrt, n)),
        name => function(name).map(|f| (Cmd::Func(f), n)),
    })
}

/// The environment called `name`, and whether a column specification follows.
pub(crate) fn environment(name: &str) -> Option<(Env, bool)> {
    Some(match name.trim_end_matches('*') {
        "pmatrix" | "bmatrix" | "matrix" | "Bmatrix" | "smallmatrix" => (Env::Matrix, false),
        "vmatrix" | "Vmatrix" => (Env::Det, false),
        "array" | "tabular" => (Env::Matrix, true),
        "cases" | "aligned" | "align" | "gathered" | "split" | "equation" | "gather" => (Env::Rows, false),
        _ => return None,
    })
}
