//! Large parts of the page, compressed: gzip in base64, which the page's script unpacks.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

/// The text, packed. The same text gives the same bytes: the header holds no time.
pub fn pack(text: &str) -> String {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into a vector cannot fail.
    let _ = encoder.write_all(text.as_bytes());
    STANDARD.encode(encoder.finish().unwrap_or_default())
}

/// What was packed; none if it is damaged.
#[cfg(test)]
pub fn unpack(packed: &str) -> Option<String> {
    let bytes = STANDARD.decode(packed).ok()?;
    std::io::read_to_string(flate2::read::GzDecoder::new(&bytes[..])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_and_repeat() {
        let text = "Größe </script> \u{0}".repeat(1000);
        assert_eq!(unpack(&pack(&text)).as_deref(), Some(text.as_str()));
        assert_eq!(pack(&text), pack(&text));
        assert!(pack(&text).len() < 1000);
    }
}
