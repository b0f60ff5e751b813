//! Manifests: what right ones mean, what is said about wrong ones, and what is documented.

mod commands;
mod documentation;
mod meaning;
mod overrides;
mod problems;
mod properties;
mod references;
mod toys;
