//! Answer grading for mathematics.
