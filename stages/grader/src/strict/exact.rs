//! Exact rational values of constant expressions that fit 128 bits.

use super::ast::{Digits, Expr, Func, Num};

/// Numerator and denominator in lowest terms, denominator positive.
pub(crate) type Ratio = (i128, i128);

/// The exact value of a rational constant, as far as 128 bits go.
pub(crate) fn small_rational(e: &Expr) -> Option<Ratio> {
    match e {
        Expr::Num(n) => number(n),
        Expr::Neg(a) => small_rational(a).map(|(n, d)| (-n, d)),
        Expr::Add(v) => v.iter().try_fold((0, 1), |a, e| add(a, small_rational(e)?)),
        Expr::Mul(v) => v.iter().try_fold((1, 1), |a, e| mul(a, small_rational(e)?)),
        Expr::Div(p) => {
            let (n, d) = small_rational(&p.1)?;
            let inverse = if n == 0 { return None } else { (d * n.signum(), n.checked_abs()?) };
            mul(small_rational(&p.0)?, inverse)
        }
        Expr::Pow(p) => {
            let (e, 1) = small_rational(&p.1)? else { return None };
            pow(small_rational(&p.0)?, e)
        }
        Expr::Func(Func::Sqrt, v) => {
            let (n, d) = small_rational(&v[0])?;
            let (a, b) = (u128::try_from(n).ok()?.isqrt(), u128::try_from(d).ok()?.isqrt());
            (a * a == n as u128 && b * b == d as u128).then_some((a as i128, b as i128))
        }
        Expr::Func(Func::Abs, v) if v.len() == 1 => small_rational(&v[0]).map(|(n, d)| (n.abs(), d)),
        _ => None,
    }
}

fn number(n: &Num) -> Option<Ratio> {
    let Digits::Small(m) = n.digits else { return None };
    let m = m as i128;
    match n.exp10 {
        0 => Some((m, 1)),
        e @ 1..=18 => Some((m.checked_mul(10i128.pow(e as u32))?, 1)),
        e @ -18..=-1 => reduce(m, 10i128.pow(-e as u32)),
        _ => None,
    }
}

fn reduce(n: i128, d: i128) -> Option<Ratio> {
    if d == 0 {
        return None;
    }
    if d == 1 {
        return Some((n, 1));
    }
    let g = gcd(n.unsigned_abs(), d.unsigned_abs()) as i128;
    let s = d.signum();
    Some((n / g * s, d / g * s))
}

fn gcd(a: u128, b: u128) -> u128 {
    if let (Ok(x), Ok(y)) = (u64::try_from(a), u64::try_from(b)) {
        let (mut x, mut y) = (x, y);
        while y != 0 {
            (x, y) = (y, x % y);
        }
        return x as u128;
    }
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x
}

fn add(a: Ratio, b: Ratio) -> Option<Ratio> {
    if a.1 == 1 && b.1 == 1 {
        return Some((a.0.checked_add(b.0)?, 1));
    }
    reduce(a.0.checked_mul(b.1)?.checked_add(b.0.checked_mul(a.1)?)?, a.1.checked_mul(b.1)?)
}

fn mul(a: Ratio, b: Ratio) -> Option<Ratio> {
    reduce(a.0.checked_mul(b.0)?, a.1.checked_mul(b.1)?)
}

fn pow(b: Ratio, e: i128) -> Option<Ratio> {
    if e < 0 {
        return match b.0 {
            0 => None,
            n => pow((b.1 * n.signum(), n.checked_abs()?), e.checked_neg()?),
        };
    }
    if e > 200 {
        return match b {
            (0 | 1, 1) => Some(b),
            _ => None,
        };
    }
    (0..e).try_fold((1, 1), |a, _| mul(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rationals() {
        let half = Expr::div(Expr::int(1), Expr::int(2));
        assert_eq!(small_rational(&Expr::Add(vec![half.clone(), Expr::int(3)])), Some((7, 2)));
        assert_eq!(small_rational(&Expr::pow(half, Expr::neg(Expr::int(3)))), Some((8, 1)));
        assert_eq!(small_rational(&Expr::div(Expr::int(1), Expr::int(0))), None);
        assert_eq!(small_rational(&Expr::pow(Expr::int(2), Expr::int(150))), None);
    }
}
