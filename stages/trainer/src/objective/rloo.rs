//! REINFORCE with a leave-one-out baseline (Kool et al. 2019; Ahmadian et al. 2024,
//! arXiv 2402.14740): one on-policy update per batch, no clipping, no division by the standard
//! deviation, no KL term.

use super::TokenLoss;

/// Advantages of one prompt's group: `A_i = r_i - (Σ_j r_j - r_i)/(G - 1)`. A group of one has no
/// baseline and advantage 0.
pub fn advantages(rewards: &[f32]) -> Vec<f32> {
    let others = rewards.len().saturating_sub(1);
    if has_zero_variance(rewards) {
        // exactly zero, whatever the rounding of the mean
        return vec![0.0; rewards.len()];
    }
    let sum: f64 = rewards.iter().map(|&r| f64::from(r)).sum();
    rewards
        .iter()
        .map(|&r| (f64::from(r) - (sum - f64::from(r)) / others as f64) as f32)
        .collect()
}

/// Whether all rewards of a group are equal, so that the group teaches nothing.
pub fn has_zero_variance(rewards: &[f32]) -> bool {
    rewards.windows(2).all(|pair| pair[0] == pair[1])
}

/// `-Σ A·lp`. `log_prob` and `advantage` hold one value per generated token: every token of a
/// rollout carries the rollout's advantage.
pub fn evaluate(log_prob: &[f32], advantage: &[f32]) -> TokenLoss {
    let mut result = TokenLoss::default();
    for (&lp, &a) in log_prob.iter().zip(advantage) {
        result.loss -= f64::from(a) * f64::from(lp);
        result.by_log_prob.push(-a);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::witness::{close, floats, load};
    use super::*;

    #[test]
    fn loss_and_gradient_are_those_of_torch() {
        let witness = load();
        let case = &witness["rloo"];
        let advantage = advantages(&floats(&case["rewards"]));
        close(&advantage, &floats(&case["advantages"]), 1e-6);
        let got = evaluate(&floats(&witness["log_prob"]), &advantage);
        assert!((got.loss - case["loss"].as_f64().unwrap()).abs() < 1e-5);
        close(&got.by_log_prob, &floats(&case["by_log_prob"]), 1e-6);
    }

    #[test]
    fn one_success_in_eight() {
        let got = advantages(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let mut want = [-1.0 / 7.0; 8];
        want[0] = 1.0;
        close(&got, &want, 1e-7);
    }

    #[test]
    fn equal_rewards_teach_nothing() {
        for reward in [-1.0, 0.0, 1.0, 0.1] {
            assert_eq!(advantages(&[reward; 7]), [0.0; 7]);
            assert!(has_zero_variance(&[reward; 7]));
        }
        assert_eq!(advantages(&[1.0]), [0.0]);
        assert!(!has_zero_variance(&[1.0, 1.0, -1.0]));
    }
}
