//! Proximal SFT (Zhu et al. 2025, arXiv 2508.17784): PPO's clipped ratio with advantage 1.

use serde::{Deserialize, Serialize};

use super::TokenLoss;
use crate::TrainError;

/// Bounds of the ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Psft {
    /// The ratio is clipped from below at `1 - clip_low`. With advantage 1 this bound is inert:
    /// the minimum takes the unclipped ratio there.
    pub clip_low: f64,
    /// The ratio is clipped from above at `1 + clip_high`: a token that has gained this much over
    /// the reference trains no further.
    pub clip_high: f64,
}

impl Default for Psft {
    fn default() -> Self {
        Self { clip_low: 0.2, clip_high: 0.28 }
    }
}

impl Psft {
    pub(crate) fn check(&self) -> Result<(), TrainError> {
        for (field, clip) in [("clip_low", self.clip_low), ("clip_high", self.clip_high)] {
            if !(clip >= 0.0 && clip.is_finite()) {
                let problem = format!("{clip} is no distance from a ratio of 1");
                return Err(TrainError::config(field, problem, "write a number from 0, such as 0.28"));
            }
        }
        Ok(())
    }
}

/// Log-ratios beyond this are clamped, as verl does (`core_algos.py`).
const MAX_LOG_RATIO: f64 = 20.0;

/// `-Σ min(r, clip(r, 1 - clip_low, 1 + clip_high))` with `r = exp(clamp(lp - ref, ±20))`.
/// `log_prob` and `reference` hold one value per trained token.
pub fn evaluate(log_prob: &[f32], reference: &[f32], options: Psft) -> TokenLoss {
    let (low, high) = (1.0 - options.clip_low, 1.0 + options.clip_high);
    let mut result = TokenLoss::default();
    let [mut clipped, mut ratio_sum, mut kl] = [0.0; 3];
    for (&lp, &reference) in log_prob.iter().zip(reference) {
        let difference = f64::from(lp) - f64::from(reference);
        let log_ratio = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
        let ratio = log_ratio.exp();
        result.loss -= ratio.min(ratio.clamp(low, high));
        let live = ratio <= high && log_ratio == difference;
        result.by_log_prob.push(if live { -ratio as f32 } else { 0.0 });
        clipped += f64::from(u8::from(ratio > high));
        ratio_sum += ratio;
        // Schulman's k3 with demonstrated tokens: r - 1 - ln r ≥ 0
        kl += ratio - 1.0 - log_ratio;
    }
    result.diagnostics = vec![("clip_fraction", clipped), ("ratio", ratio_sum), ("approx_kl", kl)];
    result
}

#[cfg(test)]
mod tests {
    use super::super::witness::{close, floats, load, same_sums};
    use super::*;

    #[test]
    fn loss_and_gradient_are_those_of_torch() {
        let witness = load();
        let case = &witness["psft"];
        let got = evaluate(&floats(&witness["log_prob"]), &floats(&witness["reference"]), Psft::default());
        assert!((got.loss - case["loss"].as_f64().unwrap()).abs() < 1e-5);
        close(&got.by_log_prob, &floats(&case["by_log_prob"]), 1e-5);
        same_sums(&got.diagnostics, &case["sums"]);
    }

    #[test]
    fn a_token_beyond_the_clamp_has_no_gradient() {
        let got = evaluate(&[-40.0, -1.0], &[-1.0, -40.0], Psft::default());
        assert!((got.loss + (-20f64).exp() + 1.28).abs() < 1e-12);
        assert_eq!(got.by_log_prob, [0.0, 0.0]);
    }

    #[test]
    fn at_the_reference_the_gradient_is_that_of_cross_entropy() {
        let lp = [-0.5, -3.0, -1e-4];
        let got = evaluate(&lp, &lp, Psft::default());
        assert_eq!(got.loss, -3.0);
        assert_eq!(got.by_log_prob, super::super::sft::evaluate(&lp).by_log_prob);
    }

    #[test]
    fn the_upper_clip_stops_a_token_and_the_lower_does_not() {
        let at = |ratio: f32| evaluate(&[ratio.ln() - 1.0], &[-1.0], Psft::default());
        let over = at(1.3);
        assert!((over.loss + 1.28).abs() < 1e-9);
        assert_eq!(over.by_log_prob, [0.0]);
        assert_eq!(over.diagnostics[0], ("clip_fraction", 1.0));
        let under = at(0.5);
        assert!((under.loss + 0.5).abs() < 1e-6);
        close(&under.by_log_prob, &[-0.5], 1e-6);
        assert_eq!(under.diagnostics[0], ("clip_fraction", 0.0));
    }
}
