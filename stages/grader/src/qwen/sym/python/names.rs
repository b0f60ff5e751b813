//! Names with a meaning of their own.

use crate::qwen::pystr;
use crate::qwen::sym::expr::Fun;

/// A function of one argument.
pub fn function(name: &str) -> Option<Fun> {
    Some(match name {
        "exp" => Fun::Exp,
        "log" | "ln" => Fun::Ln,
        "sin" => Fun::Sin,
        "cos" => Fun::Cos,
        "tan" => Fun::Tan,
        "csc" => Fun::Csc,
        "sec" => Fun::Sec,
        "cot" => Fun::Cot,
        "asin" => Fun::Asin,
        "acos" => Fun::Acos,
        "atan" => Fun::Atan,
        "sinh" => Fun::Sinh,
        "cosh" => Fun::Cosh,
        "tanh" => Fun::Tanh,
        "abs" | "Abs" => Fun::Abs,
        "conjugate" => Fun::Conjugate,
        "floor" => Fun::Floor,
        "ceiling" => Fun::Ceiling,
        "factorial" => Fun::Factorial,
        _ => return None,
    })
}

/// Names that sympy or Python give another meaning than a symbol.
pub fn is_sympy_name(name: &str) -> bool {
    matches!(
        name,
        "N" | "O"
            | "Q"
            | "S"
            | "sqrt"
            | "binomial"
            | "Rational"
            | "beta"
            | "gamma"
            | "zeta"
            | "re"
            | "im"
            | "sign"
            | "det"
            | "rad"
            | "deg"
            | "prime"
            | "max"
            | "min"
            | "sum"
            | "round"
            | "int"
            | "float"
            | "pow"
            | "divmod"
            | "range"
            | "list"
            | "set"
            | "tuple"
            | "str"
            | "print"
            | "exec"
            | "eval"
            | "open"
            | "input"
            | "test"
            | "symbols"
            | "root"
            | "lcm"
            | "gcd"
            | "diff"
            | "solve"
            | "limit"
            | "factor"
            | "expand"
            | "simplify"
            | "Sum"
            | "Product"
            | "Matrix"
            | "Integer"
            | "Float"
            | "Symbol"
            | "Function"
            | "Eq"
            | "And"
            | "Or"
            | "Not"
            | "Union"
            | "Interval"
            | "id"
            | "any"
            | "all"
            | "bin"
            | "hex"
            | "oct"
            | "len"
            | "map"
            | "zip"
            | "dir"
            | "type"
            | "vars"
            | "hash"
            | "help"
            | "iter"
            | "next"
            | "zoo"
            | "nan"
            | "lambdify"
            | "plot"
            | "pprint"
            | "mod_inverse"
            | "Mod"
            | "Max"
            | "Min"
            | "GoldenRatio"
            | "EulerGamma"
            | "Catalan"
    )
}

/// Whether Python keeps the word for itself.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(|c: char| pystr::is_decimal(c))
        || matches!(
            name,
            "and"
                | "or"
                | "not"
                | "in"
                | "is"
                | "if"
                | "else"
                | "for"
                | "lambda"
                | "None"
                | "True"
                | "False"
                | "as"
                | "assert"
                | "break"
                | "class"
                | "continue"
                | "def"
                | "del"
                | "elif"
                | "except"
                | "finally"
                | "from"
                | "global"
                | "import"
                | "nonlocal"
                | "pass"
                | "raise"
                | "return"
                | "try"
                | "while"
                | "with"
                | "yield"
                | "async"
                | "await"
        )
}
