//! Prints which of sympy's parsers reads each line of a file (JSON strings, one a line).
use std::io::BufRead;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lock().lines() {
        let text: String = serde_json::from_str(&line?)?;
        println!("{:?}", grader::qwen::sym::parser_of(&text));
    }
    Ok(())
}
