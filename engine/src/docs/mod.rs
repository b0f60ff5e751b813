//! Documentation made from the same structs that manifests are parsed into: [`schema`] is the JSON
//! Schema of manifests for editors, [`kinds`] describes stage kinds for people, and [`starter`]
//! writes a manifest to begin with.

pub mod kinds;
mod params;
pub mod schema;
pub mod starter;
