//! Manifests: what right ones mean, and what is said about wrong ones.

mod meaning;
mod problems;
mod toys;
