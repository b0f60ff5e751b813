//! Token sequences to train on, their order, and how they are put into batches.

use std::ops::Range;

use lm::rng::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// One sequence and the positions at which the head is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Positions whose distributions the objective looks at, ascending.
    pub positions: Vec<u32>,
    /// The token that each of these distributions is asked about.
    pub targets: Vec<u32>,
}

impl Sequence {
    /// A prompt and the completion to learn: every completion token is a target, the end-of-turn
    /// token with it when `completion` ends in one. What pads a batch is never a target, whatever its
    /// id, so padding with the end-of-turn token does no harm.
    pub fn completion(prompt: &[u32], completion: &[u32]) -> Self {
        let trained = prompt.len()..prompt.len() + completion.len();
        Self::masked([prompt, completion].concat(), |i| trained.contains(&i))
    }

    /// Text to learn from its second token to its last.
    pub fn text(tokens: Vec<u32>) -> Self {
        Self::masked(tokens, |_| true)
    }

    /// Tokens of which those at `trained` positions are targets. The first token has nothing before
    /// it and cannot be one.
    pub fn masked(tokens: Vec<u32>, trained: impl Fn(usize) -> bool) -> Self {
        let places: Vec<usize> = (1..tokens.len()).filter(|&i| trained(i)).collect();
        Self {
            positions: places.iter().map(|&i| i as u32 - 1).collect(),
            targets: places.iter().map(|&i| tokens[i]).collect(),
            tokens,
        }
    }

    /// A sequence whose distributions at `positions` are looked at; the target is the following
    /// token, or token 0 after the last.
    pub fn observed(tokens: Vec<u32>, positions: Range<usize>) -> Self {
        let next = |i: usize| tokens.get(i + 1).copied().unwrap_or(0);
        Self {
            positions: positions.clone().map(|i| i as u32).collect(),
            targets: positions.map(next).collect(),
            tokens,
        }
    }

    /// Refuses what a model of this vocabulary and context cannot train on.
    pub(crate) fn check(&self, index: usize, vocab: usize, context: usize) -> Result<(), TrainError> {
        let len = self.tokens.len();
        if len > context {
            return Err(TrainError::Data {
                index,
                problem: format!(
                    "{len} tokens are more than the model's context of {context}; \
                     leave it out (`max_tokens` of a `prepare` stage drops and counts such rows)"
                ),
            });
        }
        if let Some(id) = self.tokens.iter().find(|&&id| id as usize >= vocab) {
            return Err(TrainError::Data {
                index,
                problem: format!(
                    "token {id} is outside the model's vocabulary of {vocab}; \
                     use the tokenizer that belongs to the model"
                ),
            });
        }
        if self.targets.is_empty() {
            return Err(TrainError::Data {
                index,
                problem: "it has no token to learn; leave it out".to_owned(),
            });
        }
        Ok(())
    }
}

/// The order of examples: every epoch is a permutation of its own, a function of seed and epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// How many examples there are.
    pub len: usize,
    /// Seed of the permutations.
    pub seed: u64,
    /// False keeps the examples in the order they came in.
    pub shuffle: bool,
}

impl Order {
    /// The permutation of `epoch` (Fisher-Yates).
    pub fn epoch(&self, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.len).collect();
        if self.shuffle {
            let stream = Stream::new(Stream::named(self.seed, "data order").bits(0), epoch);
            for i in (1..self.len).rev() {
                // a modulus this far below 2^64 has no bias worth a rejection loop
                let j = (stream.bits(i as u64) % (i as u64 + 1)) as usize;
                order.swap(i, j);
            }
        }
        order
    }

    /// The examples at `places` of the endless row of epochs.
    pub fn at(&self, places: Range<u64>) -> Vec<usize> {
        let len = self.len as u64;
        let mut indices = Vec::with_capacity((places.end - places.start) as usize);
        let mut place = places.start;
        while place < places.end {
            let epoch = place / len;
            let end = places.end.min((epoch + 1) * len);
            let order = self.epoch(epoch);
            indices.extend((place..end).map(|p| order[(p - epoch * len) as usize]));
            place = end;
        }
        indices
    }
}

/// How sequences share a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Batching {
    /// At most this many tokens, padding included, go through the model at once. Decides memory and
    /// speed; results change by rounding only.
    pub micro_tokens: usize,
    /// Put several sequences into one row, each seeing itself only, instead of padding them.
    pub pack: bool,
}

impl Default for Batching {
    fn default() -> Self {
        Self { micro_tokens: 4096, pack: false }
    }
}

/// Sequences side by side, ready for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Which sequences, in the order of their head rows.
    pub members: Vec<usize>,
    /// Rows of the batch.
    pub rows: usize,
    /// Tokens per row.
    pub width: usize,
    /// Token ids, row by row; padding is 0.
    pub ids: Vec<u32>,
    /// Sequence and position in it of each token; padding claims the place of a first token.
    pub origins: Vec<(u32, u32)>,
    /// Position and segment of each token, when rows hold several sequences.
    pub segments: Option<(Vec<u32>, Vec<u32>)>,
    /// Places in `ids` at which the head is evaluated.
    pub places: Vec<u32>,
    /// Target of each place.
    pub targets: Vec<u32>,
}

impl Batching {
    /// Splits `members` of `sequences` into batches. Sequences of like length go together, long ones
    /// first, so that memory shows its peak at once.
    pub fn split(&self, sequences: &[Sequence], members: &[usize]) -> Vec<Batch> {
        let mut sorted = members.to_vec();
        sorted.sort_by_key(|&m| std::cmp::Reverse(sequences[m].tokens.len()));
        if self.pack {
            return self.packed(sequences, &sorted);
        }
        let mut batches = Vec::new();
        let mut rest = &sorted[..];
        while let Some(&first) = rest.first() {
            let width = sequences[first].tokens.len().max(1);
            let (now, later) = rest.split_at((self.micro_tokens / width).clamp(1, rest.len()));
            let rows: Vec<Vec<usize>> = now.iter().map(|&m| vec![m]).collect();
            batches.push(Batch::new(sequences, &rows, width, false));
            rest = later;
        }
        batches
    }

    /// [`Batching::split`] for each of `devices`, whose shares of `members` are alike in number and lengths:
    /// the sequences are dealt out, longest first, there and back.
    pub fn shares(&self, sequences: &[Sequence], members: &[usize], devices: usize) -> Vec<Vec<Batch>> {
        let mut sorted = members.to_vec();
        sorted.sort_by_key(|&m| std::cmp::Reverse(sequences[m].tokens.len()));
        let mut hands = vec![Vec::new(); devices.max(1)];
        for (round, dealt) in sorted.chunks(hands.len()).enumerate() {
            for (place, &member) in dealt.iter().enumerate() {
                let back = round % 2 == 1;
                let device = if back { hands.len() - 1 - place } else { place };
                hands[device].push(member);
            }
        }
        hands.iter().map(|hand| self.split(sequences, hand)).collect()
    }

    /// First fit, longest first, into rows as wide as the longest sequence.
    fn packed(&self, sequences: &[Sequence], sorted: &[usize]) -> Vec<Batch> {
        let Some(&longest) = sorted.first() else { return Vec::new() };
        let width = sequences[longest].tokens.len().max(1);
        let mut rows: Vec<(usize, Vec<usize>)> = Vec::new();
        for &member in sorted {
            let len = sequences[member].tokens.len();
            match rows.iter_mut().find(|(used, _)| used + len <= width) {
                Some((used, row)) => {
                    *used += len;
                    row.push(member);
                }
                None => rows.push((len, vec![member])),
            }
        }
        let rows: Vec<Vec<usize>> = rows.into_iter().map(|(_, row)| row).collect();
        rows.chunks((self.micro_tokens / width).max(1))
            .map(|rows| Batch::new(sequences, rows, width, true))
            .collect()
    }
}

impl Batch {
    fn new(sequences: &[Sequence], rows: &[Vec<usize>], width: usize, packed: bool) -> Self {
        let mut batch = Self {
            members: rows.concat(),
            rows: rows.len(),
            width,
            ids: vec![0; rows.len() * width],
            origins: vec![(0, 0); rows.len() * width],
            segments: None,
            places: Vec::new(),
            targets: Vec::new(),
        };
        // padding keeps segment 0
        let mut positions = vec![0; batch.ids.len()];
        let mut segments = vec![0; batch.ids.len()];
        for (row, members) in rows.iter().enumerate() {
            let mut start = row * width;
            for (segment, &member) in members.iter().enumerate() {
                let sequence = &sequences[member];
                let end = start + sequence.tokens.len();
                batch.ids[start..end].copy_from_slice(&sequence.tokens);
                for (i, place) in (start..end).enumerate() {
                    positions[place] = i as u32;
                    batch.origins[place] = (member as u32, i as u32);
                    segments[place] = segment as u32 + 1;
                }
                batch.places.extend(sequence.positions.iter().map(|&p| start as u32 + p));
                batch.targets.extend(&sequence.targets);
                start = end;
            }
        }
        batch.segments = packed.then_some((positions, segments));
        batch
    }

    /// The values that `of` holds for each target of each sequence, in the order of the head rows.
    pub fn gather(&self, of: &[Vec<f32>]) -> Vec<f32> {
        self.members.iter().flat_map(|&m| of[m].iter().copied()).collect()
    }

    /// The reverse of [`Batch::gather`]: puts `values`, one per head row, back to their sequences.
    pub fn scatter(&self, sequences: &[Sequence], values: &[f32], into: &mut [Vec<f32>]) {
        let mut start = 0;
        for &member in &self.members {
            let end = start + sequences[member].targets.len();
            into[member] = values[start..end].to_vec();
            start = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_real_terminator_is_learnt_where_padding_has_the_same_id() {
        let end = 0; // the id that padding has
        let sequences =
            [Sequence::completion(&[5, 6], &[7, end]), Sequence::completion(&[5, 6, 6, 6], &[8, end])];
        assert_eq!(sequences[0].targets, [7, end]);
        let batch = &Batching::default().split(&sequences, &[0, 1])[0];
        assert_eq!((batch.rows, batch.width), (2, 6));
        // the longer row first; the shorter one's two padding places are not asked about
        assert_eq!(batch.ids, [5, 6, 6, 6, 8, end, 5, 6, 7, end, 0, 0]);
        assert_eq!(batch.places, [3, 4, 7, 8]);
        assert_eq!(batch.targets, [8, end, 7, end]);
    }

    #[test]
    fn the_first_token_is_never_a_target() {
        let sequence = Sequence::completion(&[], &[3, 4]);
        assert_eq!((sequence.positions, sequence.targets), (vec![0], vec![4]));
        let observed = Sequence::observed(vec![1, 2, 3], 1..3);
        assert_eq!((observed.positions, observed.targets), (vec![1, 2], vec![3, 0]));
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_an_error_with_its_place() {
        let error = Sequence::text(vec![1, 9]).check(4, 9, 2).unwrap_err().to_string();
        assert!(error.contains("example 4") && error.contains("token 9"), "{error}");
        assert!(Sequence::text(vec![1]).check(0, 9, 2).is_err());
    }

    #[test]
    fn a_sequence_beyond_the_context_is_an_error_with_both_lengths() {
        assert!(Sequence::text(vec![1, 2, 3]).check(0, 9, 3).is_ok());
        let error = Sequence::text(vec![1, 2, 3, 4]).check(7, 9, 3).unwrap_err().to_string();
        assert!(
            error.contains("example 7") && error.contains("4 tokens") && error.contains("of 3"),
            "{error}"
        );
    }

    #[test]
    fn packed_rows_hold_whole_sequences_with_positions_of_their_own() {
        let sequences: Vec<Sequence> =
            [3, 2, 4, 1].iter().map(|&n| Sequence::text((1..=n).collect())).collect();
        let batching = Batching { micro_tokens: 8, pack: true };
        let batches = batching.split(&sequences, &[0, 1, 2, 3]);
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[0].members, [2, 0, 3]);
        assert_eq!(batches[0].ids, [1, 2, 3, 4, 1, 2, 3, 1]);
        let (positions, segments) = batches[0].segments.as_ref().unwrap();
        assert_eq!(positions, &[0, 1, 2, 3, 0, 1, 2, 0]);
        assert_eq!(segments, &[1, 1, 1, 1, 1, 1, 1, 2]);
    }

    #[test]
    fn who_is_dealt_to_last_is_dealt_to_first_in_the_next_round() {
        let sequences: Vec<Sequence> = (1..=8).map(|n| Sequence::text(vec![1; n])).collect();
        let members: Vec<usize> = (0..8).collect();
        let shares = Batching { micro_tokens: 1, pack: false }.shares(&sequences, &members, 2);
        let lengths = |share: &[Batch]| -> Vec<usize> { share.iter().map(|batch| batch.width).collect() };
        // 18 tokens each; dealt in one direction only, it were 20 and 16
        assert_eq!(lengths(&shares[0]), [8, 5, 4, 1]);
        assert_eq!(lengths(&shares[1]), [7, 6, 3, 2]);
    }

    proptest! {
        #[test]
        fn an_epoch_visits_every_example_once(len in 1usize..60, seed: u64, start in 0u64..200) {
            let order = Order { len, seed, shuffle: true };
            let mut epoch = order.epoch(start);
            epoch.sort_unstable();
            prop_assert_eq!(epoch, (0..len).collect::<Vec<_>>());
            // read in pieces or at once, the row of epochs is the same
            let whole = order.at(start..start + 50);
            let pieces: Vec<usize> =
                (0..5).flat_map(|i| order.at(start + i * 10..start + i * 10 + 10)).collect();
            prop_assert_eq!(whole, pieces);
        }

        #[test]
        fn batches_cover_every_member_within_their_budget(
            lengths in prop::collection::vec(1usize..40, 1..30), micro_tokens in 1usize..200, pack: bool,
        ) {
            let sequences: Vec<Sequence> =
                lengths.iter().map(|&n| Sequence::text(vec![1; n])).collect();
            let members: Vec<usize> = (0..sequences.len()).collect();
            let batches = Batching { micro_tokens, pack }.split(&sequences, &members);
            let mut seen: Vec<usize> = Vec::new();
            let constants: Vec<Vec<f32>> =
                sequences.iter().enumerate().map(|(i, s)| vec![i as f32; s.targets.len()]).collect();
            let mut back = vec![Vec::new(); sequences.len()];
            for batch in &batches {
                prop_assert!(batch.rows == 1 || batch.ids.len() <= micro_tokens);
                prop_assert_eq!(batch.places.len(), batch.targets.len());
                seen.extend(&batch.members);
                batch.scatter(&sequences, &batch.gather(&constants), &mut back);
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, members);
            prop_assert_eq!(back, constants);
        }

        #[test]
        fn shares_of_devices_are_alike_and_cover_every_member(
            lengths in prop::collection::vec(1usize..40, 1..60), devices in 1usize..9, pack: bool,
        ) {
            let sequences: Vec<Sequence> =
                lengths.iter().map(|&n| Sequence::text(vec![1; n])).collect();
            let members: Vec<usize> = (0..sequences.len()).collect();
            let batching = Batching { micro_tokens: 100, pack };
            let shares = batching.shares(&sequences, &members, devices);
            prop_assert_eq!(shares.len(), devices);
            if devices == 1 {
                prop_assert_eq!(&shares[0], &batching.split(&sequences, &members));
            }
            let of = |share: &Vec<Batch>| -> Vec<usize> {
                share.iter().flat_map(|batch| batch.members.clone()).collect()
            };
            let mut seen: Vec<usize> = shares.iter().flat_map(of).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, members);
            let tokens = shares.iter().map(|share| of(share).iter().map(|&m| lengths[m]).sum::<usize>());
            let (least, most) = tokens.fold((usize::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
            // dealt there and back, shares differ by the longest sequence at most
            prop_assert!(most - least <= *lengths.iter().max().unwrap());
        }
    }
}
