//! Looks for slow or panicking inputs of the strict mode: mutates and splices the answers of a
//! pairs file and reports the slowest calls.
//!
//! `strict_torture FILE [SECONDS] [SEED]`

use std::time::{Duration, Instant};

use grader::strict::equal;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

const PIECES: &[&str] = &[
    "^",
    "_",
    "{",
    "}",
    "(",
    ")",
    "!",
    r"\frac",
    r"\sqrt",
    "9999",
    "^{9^{9^9}}",
    "e999999",
    r"\sin(",
    r"\log_",
    ",",
    "and",
    r"\pm ",
    "=",
    "<",
    r"\cup",
    "[",
    "]",
    r"\binom{1000}{500}",
    "3000!",
    r"\begin{pmatrix}",
    "&",
    r"\\",
    r"\end{pmatrix}",
    "x",
    "|",
    "%",
    r"^\circ",
    "1e-9999",
    r"\{",
    r"\}",
    "0.",
    "-",
    "/",
    "i",
    r"^{1/7}",
    r"\exp(",
    r"\tan",
    r"\arcsin(",
    r"\lfloor ",
    r"\rfloor ",
    "1000000007^",
    "^{100000}",
];

fn mutate(r: &mut Random, corpus: &[String]) -> String {
    let mut s: Vec<char> = corpus[r.below(corpus.len())].chars().take(300).collect();
    for _ in 0..1 + r.below(6) {
        let at = r.below(s.len() + 1);
        match r.below(6) {
            0 => {
                let piece: Vec<char> = PIECES[r.below(PIECES.len())].chars().collect();
                s.splice(at..at, piece);
            }
            1 if !s.is_empty() => {
                let end = (at + 1 + r.below(6)).min(s.len());
                s.drain(at.min(end)..end);
            }
            2 => {
                let other: Vec<char> = corpus[r.below(corpus.len())].chars().take(200).collect();
                s.splice(at..at, other);
            }
            3 if !s.is_empty() => {
                // Nest or repeat what is there.
                let times = 1 + r.below(12);
                let part: Vec<char> = s[at.min(s.len() - 1)..].iter().take(30).copied().collect();
                for _ in 0..times {
                    s.splice(at..at, part.clone());
                }
            }
            4 => {
                let (open, close) = [
                    ("(", ")^2"),
                    (r"\sqrt{", "}"),
                    (r"\sin(", ")"),
                    ("2^{", "}"),
                    ("(", ")!"),
                    (r"\frac{1}{", "}"),
                ][r.below(6)];
                for _ in 0..1 + r.below(20) {
                    s.splice(0..0, open.chars());
                    s.extend(close.chars());
                }
            }
            _ => {
                let n = r.below(30);
                s.splice(at..at, (0..n).map(|k| char::from(b'0' + ((k * 7 + n) % 10) as u8)));
            }
        }
        s.truncate(4000);
    }
    s.into_iter().collect()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text = std::fs::read_to_string(args.first().expect("a pairs file")).expect("readable");
    let seconds: u64 = args.get(1).and_then(|s| s.parse().ok()).unwrap_or(30);
    let mut r = Random(args.get(2).and_then(|s| s.parse().ok()).unwrap_or(1) | 1 << 40);
    let mut corpus = Vec::new();
    for line in text.lines() {
        let v: serde_json::Value = serde_json::from_str(line).expect("JSON");
        corpus.extend(["pred", "gold"].iter().filter_map(|k| v[*k].as_str().map(str::to_owned)));
    }
    // Where to note each pair before it is compared, to find one that hangs.
    let trace = std::env::var("TRACE").ok();
    let start = Instant::now();
    let mut worst = Duration::ZERO;
    let mut calls = 0u64;
    while start.elapsed().as_secs() < seconds {
        let a = mutate(&mut r, &corpus);
        // The same with a small change keeps both sides comparable.
        let b = match r.below(3) {
            0 => mutate(&mut r, &corpus),
            1 => format!("{a}+1"),
            _ => mutate(&mut r, std::slice::from_ref(&a)),
        };
        if let Some(path) = &trace {
            std::fs::write(path, format!("{a}\n{b}\n")).expect("trace file");
        }
        let mut took = time(&a, &b);
        calls += 1;
        if took > Duration::from_millis(5) {
            // The least of several runs: the machine may be busy.
            for _ in 0..5 {
                took = took.min(time(&a, &b));
            }
        }
        if took > worst {
            worst = took;
            println!("{took:?}: {a:?} | {b:?}");
        }
    }
    println!("{calls} calls, worst {worst:?}");
}

/// Time on the processor of one call, or by the clock where the system does not tell.
fn time(a: &str, b: &str) -> Duration {
    let cpu = || -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split(' ').next()?.parse().ok()
    };
    let (clock, before) = (Instant::now(), cpu());
    equal(a, b);
    match (before, cpu()) {
        (Some(x), Some(y)) => Duration::from_nanos(y - x),
        _ => clock.elapsed(),
    }
}
