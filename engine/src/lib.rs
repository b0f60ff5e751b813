//! The pipeline engine: it turns a manifest into a DAG of content-hashed stages and runs what is
//! not yet known. It knows no machine learning and no stage kind; kinds are handed in through a
//! [`kind::Registry`].
//!
//! # A run, step by step
//! 1. [`manifest`] parses TOML with spans, expands arms and matrices, checks everything and yields
//!    a [`plan::Plan`]: stages in topological order with typed params, defaults filled in.
//! 2. [`key`] computes each stage's key once the digests of its inputs are known.
//! 3. [`store`] answers whether a record for that key exists; a hit is never recomputed.
//! 4. [`run`] starts a worker process for each miss, inside declared resource slots, commits its
//!    output folder to the store and writes the record last.
//! 5. [`event`] is the one stream that progress bars, `--json`, the log and the history read.
//! 6. [`history`] reads earlier runs from their logs; [`explain`] says what of a key changed, and
//!    [`numbers`] which numbers did; [`facts`]
//!    gathers what is known of a run for those who write about it.
//! 7. [`cli`] holds the command line, [`ui`] the console: only these two print.
//!
//! # On disk (`cache/`)
//! | path | what |
//! |---|---|
//! | `blobs/ab/cdef…` | file contents by BLAKE3 digest |
//! | `trees/ab/cdef…` | folder listings (name, mode, digest) by digest |
//! | `records/ab/cdef….json` | one finished key: its components, output digest, timings |
//! | `inflight/KEY/` | lock, resumable state, staging of a key being computed |
//! | `views/ab/cdef…/` | an artifact under its own names, as links into `blobs/`, for workers to read |
//! | `runs/RUN/events.jsonl` | what happened in a run, in order: the truth for history |
//! | `runs/RUN/STAGE.log` | what a stage's workers printed; `STAGE.job.json` is what they were told |
//! | `sessions/` | which keys live and last finished runs use, for the collector |
//! | `memo` | stat → digest, so that a large file is hashed once |

pub mod cli;
pub mod digest;
pub mod docs;
pub mod event;
pub mod explain;
pub mod facts;
pub mod graph;
pub mod history;
pub mod key;
pub mod kind;
pub mod manifest;
pub mod numbers;
pub mod plan;
pub mod run;
pub mod store;
pub mod ui;
