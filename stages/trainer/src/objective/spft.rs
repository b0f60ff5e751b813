//! SPFT: cross-entropy with each token weighted by `p·σ(-λΔ)`, where Δ says how far the policy has
//! moved from a frozen reference. No public formulation exists; what it leaves open is an option.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TokenLoss;
use crate::TrainError;

/// What Δ measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Distance {
    /// `lp - lp_ref`
    #[default]
    LogProb,
    /// `logit(p) - logit(p_ref)` with `logit(p) = lp - ln(-expm1(lp))`
    LogOdds,
}

/// The choices that SPFT leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spft {
    /// λ: how strongly a token that has moved from the reference is held back.
    pub lambda: f64,
    /// What Δ measures.
    pub distance: Distance,
    /// Treat the weight as a constant when differentiating.
    pub stop_gradient: bool,
}

impl Default for Spft {
    fn default() -> Self {
        Self { lambda: 1.0, distance: Distance::LogProb, stop_gradient: true }
    }
}

impl Spft {
    pub(crate) fn check(&self) -> Result<(), TrainError> {
        if self.lambda.is_finite() {
            return Ok(());
        }
        let problem = format!("{} is not possible", self.lambda);
        Err(TrainError::config("lambda", problem, "write a number such as 1.0"))
    }
}

/// Log-probabilities above this have no usable log-odds in f32.
const MAX_LOG_PROB: f64 = -1e-6;

fn logit(log_prob: f64) -> f64 {
    let log_prob = log_prob.min(MAX_LOG_PROB);
    log_prob - (-log_prob.exp_m1()).ln()
}

/// `-Σ w·lp` with `w = p·σ(-λΔ)`. `log_prob` and `reference` hold one value per trained token.
/// At Δ = 0 the weight is p/2: half of DFT (Wu et al. 2025, arXiv 2508.05629).
pub fn evaluate(log_prob: &[f32], reference: &[f32], options: Spft) -> TokenLoss {
    let lambda = options.lambda;
    let mut result = TokenLoss::default();
    let [mut weights, mut distances] = [0.0; 2];
    for (&lp, &reference) in log_prob.iter().zip(reference) {
        let (lp, reference) = (f64::from(lp), f64::from(reference));
        let p = lp.exp();
        let (distance, by_lp) = match options.distance {
            Distance::LogProb => (lp - reference, 1.0),
            Distance::LogOdds => {
                let by_lp = if lp > MAX_LOG_PROB { 0.0 } else { 1.0 / -lp.exp_m1() };
                (logit(lp) - logit(reference), by_lp)
            }
        };
        let gate = 1.0 / (1.0 + (lambda * distance).exp());
        let weight = p * gate;
        let mut gradient: f64 = -weight;
        if !options.stop_gradient {
            gradient -= lp * (weight - lambda * p * gate * (1.0 - gate) * by_lp);
        }
        result.loss -= weight * lp;
        result.by_log_prob.push(gradient as f32);
        weights += weight;
        distances += distance;
    }
    result.diagnostics = vec![("weight", weights), ("distance", distances)];
    result
}

#[cfg(test)]
mod tests {
    use super::super::witness::{close, floats, load, same_sums};
    use super::*;

    #[test]
    fn loss_and_gradient_are_those_of_torch() {
        let witness = load();
        for (name, distance, stop_gradient) in [
            ("log_prob_stop", Distance::LogProb, true),
            ("log_prob_through", Distance::LogProb, false),
            ("log_odds_stop", Distance::LogOdds, true),
            ("log_odds_through", Distance::LogOdds, false),
        ] {
            let case = &witness["spft"][name];
            let options = Spft { lambda: 0.7, distance, stop_gradient };
            let got = evaluate(&floats(&witness["log_prob"]), &floats(&witness["reference"]), options);
            assert!((got.loss - case["loss"].as_f64().unwrap()).abs() < 1e-5, "{name}");
            close(&got.by_log_prob, &floats(&case["by_log_prob"]), 1e-5);
            same_sums(&got.diagnostics, &case["sums"]);
        }
    }

    #[test]
    fn at_the_reference_the_weight_is_half_the_probability() {
        let got = evaluate(&[-0.25], &[-0.25], Spft::default());
        let half = (-0.25f64).exp() / 2.0;
        assert!((got.loss - 0.25 * half).abs() < 1e-9);
        assert!((got.diagnostics[0].1 - half).abs() < 1e-9);
    }

    #[test]
    fn a_certain_token_has_finite_log_odds() {
        let options = Spft { distance: Distance::LogOdds, stop_gradient: false, ..Spft::default() };
        let got = evaluate(&[0.0], &[-30.0], options);
        assert!(got.loss.is_finite() && got.by_log_prob[0].is_finite());
    }
}
