//! The Qwen2.5-Math grader's rules, in their order, wrong verdicts included: what published
//! numbers used.
//!
//! - [`strip`]: `strip_string`, the normalisation of an answer
//! - [`gold`]: `parse_ground_truth`, the normalisation of a gold answer by data set
//! - [`choice`]: multiple-choice cleaning
//! - [`equal`](mod@equal): `math_equal`
//! - `pystr`, `words`, `units`: Python string semantics, number words, the unit list

pub mod choice;
pub mod equal;
pub mod gold;
pub mod pystr;
pub mod strip;
pub mod sym;
mod units;
mod words;
