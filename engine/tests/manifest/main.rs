//! Manifests: what right ones mean, what is said about wrong ones, and what is documented.

mod documentation;
mod meaning;
mod overrides;
mod problems;
mod properties;
mod toys;
