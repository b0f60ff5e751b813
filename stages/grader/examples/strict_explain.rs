//! How the strict mode reads each argument, and its verdict on the first two.

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    for a in &args {
        println!("{a}\n  {}", grader::strict::explain(a));
    }
    if let [a, b, ..] = &args[..] {
        println!("{:?}", grader::strict::equal(a, b));
    }
}
