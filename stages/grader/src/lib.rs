//! Answer grading for mathematics.
pub mod reason;
pub mod strict;
pub use reason::Reason;
