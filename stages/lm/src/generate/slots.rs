//! Which tokens each cache slot holds.
//!
//! A slot keeps its keys and values after its sequence has left, until it is needed again. A new
//! sequence takes over the longest prefix that any slot holds: its siblings' prompt (several samples
//! of one question) or a few-shot preamble that all questions share is then computed once.

/// A slot's content and whether a running sequence owns it.
#[derive(Debug, Clone, Default)]
struct Slot {
    /// Tokens whose keys and values are in the cache.
    held: Vec<u32>,
    busy: bool,
    /// When it was last given out; the least recent free slot goes first.
    given: u64,
}

/// All slots of a cache.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    clock: u64,
}

/// A slot for a new sequence, and the prefix to copy into it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub slot: usize,
    /// The slot that holds the prefix; possibly `slot` itself.
    pub source: usize,
    /// Tokens of the prompt that need not be computed.
    pub reused: usize,
}

/// Length of the longest common prefix.
pub(super) fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

impl Slots {
    pub fn new(count: usize) -> Self {
        Self { slots: vec![Slot::default(); count], clock: 0 }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn any_free(&self) -> bool {
        self.slots.iter().any(|s| !s.busy)
    }

    /// The slot with the longest prefix of `prompt`, and its length. The last token is always left
    /// to compute: its logits are needed.
    pub fn longest_prefix(&self, prompt: &[u32]) -> (usize, usize) {
        let usable = &prompt[..prompt.len() - 1];
        let mut best = (0, 0);
        for (index, slot) in self.slots.iter().enumerate() {
            let len = common_prefix(&slot.held, usable);
            if len > best.1 {
                best = (index, len);
            }
        }
        best
    }

    /// Takes a free slot for a sequence that starts with `prompt`; `None` when all are busy.
    pub fn take(&mut self, prompt: &[u32]) -> Option<Place> {
        let (source, reused) = self.longest_prefix(prompt);
        let slot = if reused > 0 && !self.slots[source].busy {
            source
        } else {
            let free = self.slots.iter().enumerate().filter(|(_, s)| !s.busy);
            free.min_by_key(|(_, s)| s.given)?.0
        };
        self.clock += 1;
        self.slots[slot] = Slot { held: prompt[..reused].to_vec(), busy: true, given: self.clock };
        Some(Place { slot, source, reused })
    }

    /// Notes that `tokens` were computed after what `slot` held.
    pub fn extend(&mut self, slot: usize, tokens: &[u32]) {
        self.slots[slot].held.extend_from_slice(tokens);
    }

    pub fn release(&mut self, slot: usize) {
        self.slots[slot].busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_found_copied_and_reused_in_place() {
        let mut slots = Slots::new(2);
        let first = slots.take(&[1, 2, 3]).unwrap();
        assert_eq!((first.slot, first.reused), (0, 0));
        slots.extend(0, &[1, 2, 3, 9]);
        // busy: copied to the other slot, all but the last prompt token
        assert_eq!(slots.take(&[1, 2, 3]), Some(Place { slot: 1, source: 0, reused: 2 }));
        assert_eq!(slots.take(&[1]), None);
        assert!(!slots.any_free());
        // free: taken over in place, truncated to what is shared
        slots.release(0);
        assert_eq!(slots.take(&[1, 2, 3, 4, 5]), Some(Place { slot: 0, source: 0, reused: 3 }));
        slots.release(0);
        assert_eq!(slots.longest_prefix(&[1, 2, 3, 9, 9]), (0, 3));
    }

    #[test]
    fn the_least_recently_given_slot_goes_first() {
        let mut slots = Slots::new(3);
        for token in [7, 8, 9] {
            let place = slots.take(&[token, 0]).unwrap();
            slots.extend(place.slot, &[token, 0]);
        }
        slots.release(1);
        slots.release(0);
        assert_eq!(slots.take(&[5, 5]).unwrap().slot, 0);
    }
}
