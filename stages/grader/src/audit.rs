//! How answers were extracted over a whole evaluation.
