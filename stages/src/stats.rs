//! Statistics of accuracies: Wilson intervals, the exact McNemar test, the paired bootstrap.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// 97.5 % quantile of the standard normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// A 95 % interval, lower and upper end.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Wilson's score interval (1927) for `successes` of `n`; the whole range when n is 0.
pub fn wilson(successes: u64, n: u64) -> Interval {
    if n == 0 {
        return Interval { low: 0.0, high: 1.0 };
    }
    let (k, n) = (successes as f64, n as f64);
    let p = k / n;
    let z2 = Z95 * Z95;
    let scale = 1.0 + z2 / n;
    let centre = (p + z2 / (2.0 * n)) / scale;
    let half = Z95 / scale * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    // The ends are exact at 0 and n; rounding must not push them past the estimate.
    Interval {
        low: if k == 0.0 { 0.0 } else { (centre - half).max(0.0) },
        high: if k == n { 1.0 } else { (centre + half).min(1.0) },
    }
}

/// Two-sided exact McNemar test: how likely a split at least as uneven as `gained` against `lost`
/// is when both directions are equally likely. 1 when nothing flipped.
pub fn mcnemar_exact(gained: u64, lost: u64) -> f64 {
    let n = gained + lost;
    // ln C(n, i) − n ln 2 grows term by term; summed from the smallest.
    let mut term = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for i in 0..=gained.min(lost) {
        tail += term.exp();
        term += ((n - i) as f64).ln() - ((i + 1) as f64).ln();
    }
    (2.0 * tail).min(1.0)
}

/// Number of resamples of a bootstrap.
pub const RESAMPLES: usize = 10_000;

/// 95 % percentile interval of the mean of `values`, resampled by question. With the differences
/// of two arms per question as values this is the paired bootstrap.
pub fn bootstrap_mean(values: &[f64], seed: u64) -> Interval {
    if values.is_empty() {
        return Interval { low: f64::NAN, high: f64::NAN };
    }
    let n = values.len() as u64;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let sum: f64 = (0..n)
                // High bits of a 64×32-bit product: uniform to within 2⁻³² · n.
                .map(|_| values[((u64::from(rng.next_u32()) * n) >> 32) as usize])
                .sum();
            sum / n as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    Interval { low: quantile(&means, 0.025), high: quantile(&means, 0.975) }
}

/// Linear-interpolation quantile of sorted values (NumPy's default). NaN when empty.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = q * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * place.fract()
}

/// Mean; NaN when empty.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample standard deviation (n − 1); none below two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let centre = mean(values);
    let squares: f64 = values.iter().map(|v| (v - centre).powi(2)).sum();
    Some((squares / (values.len() - 1) as f64).sqrt())
}

/// 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom, from SciPy.
const T95: [f64; 30] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004, 2.262_157,
    2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905, 2.109_816, 2.100_922,
    2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899, 2.059_539, 2.055_529, 2.051_830,
    2.048_407, 2.045_230, 2.042_272,
];

/// 95 % interval of the mean of a few independent values by Student's t; none below two values.
pub fn student_mean(values: &[f64]) -> Option<Interval> {
    let deviation = standard_deviation(values)?;
    let freedom = values.len() - 1;
    // Beyond the table three terms of the expansion around the normal quantile (Abramowitz and Stegun
    // 26.7.5) are exact to five digits.
    let expanded = || {
        let (n, z) = (freedom as f64, Z95);
        z + (z.powi(3) + z) / (4.0 * n)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n.powi(2))
            + (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / (384.0 * n.powi(3))
    };
    let t = T95.get(freedom - 1).copied().unwrap_or_else(expanded);
    let half = t * deviation / (values.len() as f64).sqrt();
    let centre = mean(values);
    Some(Interval { low: centre - half, high: centre + half })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    /// Values computed by `tests/scripts/stats.py` with SciPy and NumPy.
    #[derive(Deserialize)]
    struct Reference {
        wilson: Vec<(u64, u64, f64, f64)>,
        mcnemar: Vec<(u64, u64, f64)>,
        bootstrap: Vec<(Vec<f64>, f64, f64)>,
        quantile: Vec<(Vec<f64>, f64, f64)>,
        student: Vec<(Vec<f64>, f64, f64)>,
    }

    fn reference() -> Reference {
        serde_json::from_str(include_str!("../tests/data/stats.json")).unwrap()
    }

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not within {tolerance} of {b}");
    }

    #[test]
    fn wilson_equals_scipy() {
        let rows = reference().wilson;
        assert!(rows.len() > 20);
        for (k, n, low, high) in rows {
            let got = wilson(k, n);
            close(got.low, low, 1e-12);
            close(got.high, high, 1e-12);
        }
    }

    #[test]
    fn mcnemar_equals_scipys_binomial_test() {
        let rows = reference().mcnemar;
        assert!(rows.len() > 10);
        for (gained, lost, p) in rows {
            close(mcnemar_exact(gained, lost), p, 1e-9 * p.max(1e-6));
        }
        assert_eq!(mcnemar_exact(0, 0), 1.0);
    }

    #[test]
    fn bootstrap_agrees_with_scipy() {
        for (values, low, high) in reference().bootstrap {
            // Both are random; 10,000 resamples put the ends within a tenth of their width.
            let tolerance = 0.1 * (high - low);
            let got = bootstrap_mean(&values, 1);
            close(got.low, low, tolerance);
            close(got.high, high, tolerance);
            assert_eq!(got, bootstrap_mean(&values, 1));
        }
    }

    #[test]
    fn quantile_equals_numpy() {
        for (values, q, expected) in reference().quantile {
            close(quantile(&values, q), expected, 1e-12);
        }
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn student_equals_scipy() {
        let rows = reference().student;
        assert!(rows.len() > 5);
        for (values, low, high) in rows {
            let got = student_mean(&values).unwrap();
            close(got.low, low, 1e-5 * (high - low));
            close(got.high, high, 1e-5 * (high - low));
        }
        assert_eq!(student_mean(&[0.5]), None);
    }

    #[test]
    fn spread_needs_two_values() {
        assert_eq!(standard_deviation(&[1.0]), None);
        close(standard_deviation(&[1.0, 2.0, 4.0]).unwrap(), 1.527_525_231_651_947, 1e-12);
    }
}
