//! Language-model runtime on burn.
