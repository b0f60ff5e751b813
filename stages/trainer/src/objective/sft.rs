//! Supervised fine-tuning: the negative log-likelihood of the demonstrated tokens.

use super::TokenLoss;

/// `-Σ lp`, with `log_prob` one value per trained token.
pub fn evaluate(log_prob: &[f32]) -> TokenLoss {
    TokenLoss {
        loss: -log_prob.iter().map(|&lp| f64::from(lp)).sum::<f64>(),
        by_log_prob: vec![-1.0; log_prob.len()],
        ..TokenLoss::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::witness::{close, floats, load};

    #[test]
    fn loss_and_gradient_are_those_of_torch() {
        let witness = load();
        let case = &witness["sft"];
        let got = super::evaluate(&floats(&witness["log_prob"]));
        assert!((got.loss - case["loss"].as_f64().unwrap()).abs() < 1e-5);
        close(&got.by_log_prob, &floats(&case["by_log_prob"]), 1e-6);
    }
}
