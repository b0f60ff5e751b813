//! Entropy minimisation (Gao et al. 2025, "One-shot Entropy Minimization", arXiv 2505.20282): the
//! mean entropy of the policy at temperature τ along its own rollouts.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::TokenLoss;

/// Which positions' distributions count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Mask {
    /// The positions that the generated tokens were drawn at.
    #[default]
    Causal,
    /// The published code's: logits are not shifted, so the distribution of the first generated
    /// token is left out and the one after the last token is counted.
    Reference,
}

impl Mask {
    /// Positions of a sequence of `prompt` + `completion` tokens whose distributions count.
    pub fn positions(self, prompt: usize, completion: usize) -> Range<usize> {
        match self {
            Self::Causal => prompt.saturating_sub(1)..(prompt + completion).saturating_sub(1),
            Self::Reference => prompt..prompt + completion,
        }
    }
}

/// `Σ H`, with `entropy` one value (in nats, at the loss's temperature) per counted position.
pub fn evaluate(entropy: &[f32]) -> TokenLoss {
    TokenLoss {
        loss: entropy.iter().map(|&h| f64::from(h)).sum(),
        by_entropy: vec![1.0; entropy.len()],
        ..TokenLoss::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_shifted_by_one() {
        // prompt 0 1 2, completion 3 4: token 3 is drawn at position 2
        assert_eq!(Mask::Causal.positions(3, 2), 2..4);
        assert_eq!(Mask::Reference.positions(3, 2), 3..5);
        assert_eq!(Mask::Causal.positions(3, 0), 2..2);
    }

    #[test]
    fn every_position_counts_once() {
        let got = evaluate(&[0.5, 0.25]);
        assert_eq!((got.loss, got.by_entropy), (0.75, vec![1.0, 1.0]));
        assert!(got.by_log_prob.is_empty());
    }
}
