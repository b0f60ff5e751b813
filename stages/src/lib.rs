//! Every stage kind, and the registry that hands them to the engine.
//!
//! | kind | file | does |
//! |---|---|---|
//! | `synth` | `kinds/synth/` | makes arithmetic word problems |
//!
//! To add a kind: write `kinds/NAME.rs` with a params struct that implements
//! [`engine::kind::Stage`], and add its line to [`registry`].

pub mod kinds;

use engine::kind::Registry;

/// Every kind the binary knows.
pub fn registry() -> Registry {
    Registry::new().with::<kinds::synth::Synth>()
}
