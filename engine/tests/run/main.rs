//! Runs of toy stages through the program itself: what is served, what is computed, what survives.

mod caching;
mod chaos;
mod failing;
mod killing;
mod looking;
mod machine;
mod scenarios;
mod sharing;
mod support;
mod telling;
