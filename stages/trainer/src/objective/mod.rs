//! Objectives: pure functions from numbers per token to a loss, its gradient and diagnostics.
//!
//! | module | objective |
//! |---|---|
//! | [`sft`] | supervised fine-tuning: negative log-likelihood |
//! | [`psft`] | proximal SFT: clipped ratio to a frozen reference |
//! | [`spft`] | self-paced SFT: weight by own probability and distance to a reference |
//! | [`rloo`] | REINFORCE with leave-one-out baseline |
//! | [`entropy`] | entropy minimisation |
//!
//! Every objective here is a sum over tokens of a function of that token's log-probability (or of
//! the entropy of its distribution) and constants. So an objective never sees a logit: it says what
//! the loss is and what its derivative by each log-probability or entropy is, and [`crate::loss`]
//! turns that into gradients of hidden states and head, chunk by chunk. Losses are sums; whoever
//! calls divides by the tokens of the whole global batch.

pub mod entropy;
pub mod psft;
pub mod rloo;
pub mod sft;
pub mod spft;

/// A sum over tokens of something worth logging, by name. Divided by the tokens it is a mean.
pub type Diagnostic = (&'static str, f64);

/// The value of an objective on some tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokenLoss {
    /// Sum of the tokens' losses.
    pub loss: f64,
    /// Derivative of `loss` by each token's log-probability. Empty where there is none.
    pub by_log_prob: Vec<f32>,
    /// Derivative of `loss` by the entropy at each token. Empty where there is none.
    pub by_entropy: Vec<f32>,
    /// Sums over the tokens.
    pub diagnostics: Vec<Diagnostic>,
}

#[cfg(test)]
pub(crate) mod witness {
    //! Values that PyTorch computed: `tests/scripts/objectives.py`.

    use serde_json::Value;

    pub fn load() -> Value {
        serde_json::from_str(include_str!("../../tests/scripts/objectives.json")).unwrap()
    }

    pub fn floats(value: &Value) -> Vec<f32> {
        value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
    }

    /// `got` are the sums that `want` names, in any order, within `1e-5` absolute.
    #[track_caller]
    pub fn same_sums(got: &[super::Diagnostic], want: &Value) {
        let want = want.as_object().unwrap();
        assert_eq!(got.len(), want.len());
        for (name, sum) in got {
            let want = want[*name].as_f64().unwrap();
            assert!((sum - want).abs() < 1e-5, "{name}: {sum} against {want}");
        }
    }

    /// `got` equals `want` within `tolerance`, absolute and relative.
    #[track_caller]
    pub fn close(got: &[f32], want: &[f32], tolerance: f32) {
        assert_eq!(got.len(), want.len());
        for (i, (g, w)) in got.iter().zip(want).enumerate() {
            assert!((g - w).abs() <= tolerance * (1.0 + w.abs()), "at {i}: {g} against {w}");
        }
    }
}
