//! From logits to a token.

use super::SamplingParams;
use crate::host::exponentials;
use crate::rng::Stream;

/// A chosen token with its log-probabilities (nats).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Choice {
    pub id: u32,
    /// Under the distribution it was drawn from.
    pub logprob: f32,
    /// Under the model at temperature 1.
    pub model_logprob: f32,
}

/// What decides a sequence's next token beside its logits.
pub(crate) struct Draw<'a> {
    pub params: &'a SamplingParams,
    /// Distinct tokens of prompt and sample, where the repetition penalty asks for them.
    pub seen: &'a [u32],
    /// The sample's random numbers, and how many tokens it has.
    pub stream: Stream,
    pub index: u64,
}

impl Draw<'_> {
    /// The number in (0, 1) that decides the token `ahead` after the next.
    pub fn uniform(&self, ahead: u64) -> f64 {
        self.stream.uniform(self.index + ahead)
    }

    /// Whether some tokens are ruled out.
    #[cfg(feature = "cuda")]
    pub fn filters(&self) -> bool {
        self.params.temperature > 0.0
            && (self.params.top_k > 0 || self.params.top_p < 1.0 || self.params.min_p > 0.0)
    }

    /// Chooses from `logits` `[vocab]` one of the first `usable` tokens.
    pub fn choose(&self, logits: &mut [f32], usable: usize) -> Option<Choice> {
        choose(logits, usable, self.seen, self.params, self.uniform(0))
    }
}

/// Chooses one of the first `usable` tokens; rows of the vocabulary above are padding. `logits` are
/// the model's, `[vocab]`; `seen` are the distinct tokens of prompt and sample; `uniform` is a number
/// in (0, 1) that decides among them. `None` when the logits are not finite.
fn choose(
    logits: &mut [f32],
    usable: usize,
    seen: &[u32],
    params: &SamplingParams,
    uniform: f64,
) -> Option<Choice> {
    let mut exp = vec![0.0; logits.len()];
    let (sum, max) = exponentials(logits, 1.0, &mut exp);
    if !sum.is_finite() || !max.is_finite() {
        return None;
    }
    let log_sum = max + sum.ln();
    let padded = usable < logits.len();
    let logits = &mut logits[..usable];
    exp.truncate(usable);
    let raw = (params.repetition_penalty != 1.0).then(|| logits.to_vec());
    if params.repetition_penalty != 1.0 {
        penalise(logits, seen, params.repetition_penalty);
    }
    let model_logprob = |id: u32, logits: &[f32]| raw.as_deref().unwrap_or(logits)[id as usize] - log_sum;
    if params.temperature == 0.0 {
        let id = argmax(logits);
        return Some(Choice { id, logprob: 0.0, model_logprob: model_logprob(id, logits) });
    }
    let (id, logprob) = if params.top_k > 0 || params.top_p < 1.0 || params.min_p > 0.0 {
        draw(logits, cutoff(logits, params), params.temperature, uniform)
    } else {
        // The exponentials above serve again when nothing was transformed.
        let sum = match params.temperature == 1.0 && params.repetition_penalty == 1.0 && !padded {
            true => sum,
            false => exponentials(logits, 1.0 / params.temperature, &mut exp).0,
        };
        let index = invert(&exp, uniform);
        (index as u32, (exp[index] / sum).ln())
    };
    Some(Choice { id, logprob, model_logprob: model_logprob(id, logits) })
}

fn penalise(logits: &mut [f32], seen: &[u32], penalty: f32) {
    for &id in seen {
        // Ids beyond the usable vocabulary can only come from the prompt.
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = if *logit < 0.0 { *logit * penalty } else { *logit / penalty };
        }
    }
}

/// The first of the largest.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (id, &logit) in logits.iter().enumerate() {
        if logit > logits[best] {
            best = id;
        }
    }
    best as u32
}

/// The index at which the running sum of `weights` passes `uniform` of their total. Sums are f64, so
/// that small weights at the end of a large vocabulary count.
fn invert(weights: &[f32], uniform: f64) -> usize {
    const BLOCK: usize = 256;
    let sums: Vec<f64> = weights.chunks(BLOCK).map(|c| c.iter().map(|&w| f64::from(w)).sum()).collect();
    let mut target = uniform * sums.iter().sum::<f64>();
    for (block, &sum) in sums.iter().enumerate() {
        if target < sum {
            let start = block * BLOCK;
            for (index, &w) in weights[start..].iter().take(BLOCK).enumerate() {
                target -= f64::from(w);
                if target < 0.0 {
                    return start + index;
                }
            }
        }
        target -= sum;
    }
    // Rounding used up the total: the last token that can be drawn at all.
    weights.iter().rposition(|&w| w > 0.0).unwrap_or(0)
}

/// The smallest logit that top-k, top-p and min-p leave. Equal logits stay or go together, so that which
/// ones stay does not hang on how they are sorted.
fn cutoff(logits: &[f32], params: &SamplingParams) -> f32 {
    let descending = |a: &f32, b: &f32| b.total_cmp(a);
    let mut sorted = logits.to_vec();
    if params.top_k > 0 && params.top_k < sorted.len() {
        let (_, &mut least, _) = sorted.select_nth_unstable_by(params.top_k - 1, descending);
        sorted.retain(|&logit| logit >= least);
    }
    sorted.sort_unstable_by(descending);
    let (max, temperature) = (f64::from(sorted[0]), f64::from(params.temperature));
    let weight = |logit: f32| ((f64::from(logit) - max) / temperature).exp();
    let mut kept = sorted.len();
    if params.top_p < 1.0 {
        let total: f64 = sorted.iter().map(|&logit| weight(logit)).sum();
        let mut reached = 0.0;
        // A token stays while the ones before it have not reached top-p.
        let stay = sorted.iter().take_while(|&&logit| {
            let stays = reached < f64::from(params.top_p) * total;
            reached += weight(logit);
            stays
        });
        kept = stay.count();
    }
    if params.min_p > 0.0 {
        let stay = sorted.iter().take_while(|&&logit| weight(logit) >= f64::from(params.min_p));
        kept = kept.min(stay.count());
    }
    sorted[kept.max(1) - 1]
}

/// Draws one of the logits from `least` on, with its log-probability among them. In the order of ids, as
/// without a cutoff.
fn draw(logits: &[f32], least: f32, temperature: f32, uniform: f64) -> (u32, f32) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scaled = |logit: f32| (f64::from(logit) - f64::from(max)) / f64::from(temperature);
    let weights: Vec<f32> =
        logits.iter().map(|&l| if l >= least { scaled(l).exp() as f32 } else { 0.0 }).collect();
    let total: f64 = logits.iter().filter(|l| **l >= least).map(|&l| scaled(l).exp()).sum();
    let chosen = invert(&weights, uniform);
    (chosen as u32, (scaled(logits[chosen]) - total.ln()) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 6] = [1.0, 2.5, -0.5, 2.0, 0.0, -3.0];

    fn params(f: impl FnOnce(&mut SamplingParams)) -> SamplingParams {
        let mut params = SamplingParams::default();
        f(&mut params);
        params
    }

    fn probabilities(logits: &[f64]) -> Vec<f64> {
        let total: f64 = logits.iter().map(|l| l.exp()).sum();
        logits.iter().map(|l| l.exp() / total).collect()
    }

    /// Frequencies of 60,000 draws against `expected`; 5 standard errors of a frequency of 0.5 are
    /// 0.0102. Log-probabilities are those of `expected`.
    fn check(params: &SamplingParams, seen: &[u32], expected: &[f64]) {
        let stream = Stream::new(11, 0);
        let draws = 60_000;
        let mut counts = vec![0; LOGITS.len()];
        let model = probabilities(&LOGITS.map(f64::from));
        for i in 0..draws {
            let choice = choose(&mut LOGITS.to_vec(), 6, seen, params, stream.uniform(i)).unwrap();
            let id = choice.id as usize;
            counts[id] += 1;
            assert!((f64::from(choice.logprob) - expected[id].ln()).abs() < 1e-5);
            assert!((f64::from(choice.model_logprob) - model[id].ln()).abs() < 1e-5);
        }
        for (count, p) in counts.iter().zip(expected) {
            let frequency = f64::from(*count) / draws as f64;
            assert!((frequency - p).abs() < 0.0103, "{counts:?} {expected:?}");
            assert!(*p > 0.0 || *count == 0);
        }
    }

    fn only(kept: &[usize], temperature: f64) -> Vec<f64> {
        let masked: Vec<f64> = LOGITS
            .iter()
            .enumerate()
            .map(|(i, &l)| if kept.contains(&i) { f64::from(l) / temperature } else { f64::NEG_INFINITY })
            .collect();
        probabilities(&masked)
    }

    #[test]
    fn frequencies_follow_the_distribution() {
        let all = [0, 1, 2, 3, 4, 5];
        check(&params(|_| {}), &[], &only(&all, 1.0));
        check(&params(|p| p.temperature = 2.0), &[], &only(&all, 2.0));
        check(&params(|p| p.top_k = 3), &[], &only(&[1, 3, 0], 1.0));
        // probabilities 0.509, 0.309, 0.113: two reach 0.7, the third is needed for 0.9
        check(&params(|p| p.top_p = 0.7), &[], &only(&[1, 3], 1.0));
        check(&params(|p| p.top_p = 0.9), &[], &only(&[1, 3, 0], 1.0));
        // relative to the likeliest: 1, 0.61, 0.22, 0.08
        check(&params(|p| p.min_p = 0.2), &[], &only(&[1, 3, 0], 1.0));
        check(&params(|p| (p.top_k, p.top_p, p.temperature) = (4, 0.9, 1.5)), &[], &only(&[1, 3, 0], 1.5));
    }

    #[test]
    fn repetition_penalty_divides_and_multiplies() {
        let logits = [1.0, 2.5 / 2.0, -0.5 * 2.0, 2.0, 0.0, -3.0];
        check(&params(|p| p.repetition_penalty = 2.0), &[1, 2, 999], &probabilities(&logits));
        let greedy = params(|p| (p.temperature, p.repetition_penalty) = (0.0, 2.0));
        let choice = choose(&mut LOGITS.to_vec(), 6, &[1, 2], &greedy, 0.5).unwrap();
        assert_eq!((choice.id, choice.logprob), (3, 0.0));
    }

    #[test]
    fn greedy_takes_the_first_of_equals() {
        let greedy = SamplingParams::greedy(1);
        assert_eq!(choose(&mut [1.0, 3.0, 3.0], 3, &[], &greedy, 0.9).unwrap().id, 1);
    }

    #[test]
    fn padding_of_the_vocabulary_is_never_chosen() {
        let logits = [0.0, 1.0, 9.0];
        let total = probabilities(&[0.0, 1.0, 9.0]);
        let usable = probabilities(&[0.0, 1.0]);
        for p in [SamplingParams::greedy(1), params(|_| {}), params(|p| p.top_k = 3)] {
            let choice = choose(&mut logits.to_vec(), 2, &[], &p, 0.5).unwrap();
            assert_eq!(choice.id, 1);
            assert!((f64::from(choice.model_logprob) - total[1].ln()).abs() < 1e-5);
            let drawn = if p.temperature == 0.0 { 0.0 } else { usable[1].ln() };
            assert!((f64::from(choice.logprob) - drawn).abs() < 1e-5);
        }
    }

    #[test]
    fn extremes_of_the_uniform_stay_inside() {
        for uniform in [1e-300, 1.0 - 1e-16] {
            for p in [params(|_| {}), params(|p| p.top_p = 0.99)] {
                let mut logits = [f32::NEG_INFINITY, 0.0, -200.0, f32::NEG_INFINITY];
                assert_eq!(choose(&mut logits, 4, &[], &p, uniform).unwrap().id, 1);
            }
        }
    }

    #[test]
    fn equal_logits_stay_or_go_together() {
        let logits = [1.0, 0.0, 1.0, 1.0, 3.0];
        for (p, least) in [
            (params(|p| p.top_k = 2), 1.0),
            (params(|p| p.top_k = 1), 3.0),
            // 0.69 of the probability is the likeliest's, 0.78 with the next
            (params(|p| p.top_p = 0.75), 1.0),
            (params(|p| p.min_p = 0.1), 1.0),
        ] {
            assert_eq!(cutoff(&logits, &p), least, "{p:?}");
        }
    }

    /// A filter that leaves everything changes no draw.
    #[test]
    fn filters_keep_the_order_of_draws() {
        let stream = Stream::new(5, 0);
        for i in 0..200 {
            let draw =
                |p: &SamplingParams| choose(&mut LOGITS.to_vec(), 6, &[], p, stream.uniform(i)).unwrap().id;
            assert_eq!(draw(&params(|p| p.top_k = 6)), draw(&params(|_| {})));
        }
    }

    #[test]
    fn not_a_number_is_noticed() {
        let sample = SamplingParams::default();
        assert_eq!(choose(&mut [1.0, f32::NAN, 0.0], 3, &[], &sample, 0.5), None);
        assert_eq!(choose(&mut [f32::NEG_INFINITY; 3], 3, &[], &sample, 0.5), None);
        assert_eq!(choose(&mut [f32::INFINITY, 0.0], 2, &[], &sample, 0.5), None);
    }
}
