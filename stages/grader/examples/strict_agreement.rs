//! Acceptance of the strict mode per category of a pairs file, with every false positive.
//!
//! `strict_agreement FILE [--misses] [--only TEXT]`: each line of FILE is an object with `pred`,
//! `gold`, `source` and `intended` (true, false or null).

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use grader::strict;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = args.first() else {
        eprintln!("usage: strict_agreement FILE [--misses] [--only TEXT]");
        return ExitCode::from(2);
    };
    let misses = args.iter().any(|a| a == "--misses");
    let only = args.iter().position(|a| a == "--only").and_then(|i| args.get(i + 1));
    let text = match std::fs::read_to_string(path) {
        Ok(t) => t,
        Err(e) => {
            eprintln!("{path}: {e}");
            return ExitCode::from(2);
        }
    };
    let mut pairs = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let Ok(v) = serde_json::from_str::<serde_json::Value>(line) else {
            eprintln!("{path}:{}: not JSON", n + 1);
            return ExitCode::from(2);
        };
        let field = |k: &str| v[k].as_str().unwrap_or("").to_owned();
        let source = field("source");
        let category = source.split_once(':').map_or(source.as_str(), |s| s.1).to_owned();
        if only.is_none_or(|o| category.contains(o.as_str())) {
            pairs.push((category, field("pred"), field("gold"), v["intended"].as_bool()));
        }
    }

    let mut table: BTreeMap<(bool, String), (usize, usize)> = BTreeMap::new();
    let (mut slow, mut budget) = (Vec::new(), 0);
    for (category, pred, gold, intended) in &pairs {
        let start = Instant::now();
        let verdict = strict::equal(pred, gold);
        slow.push((start.elapsed(), pred, gold));
        budget += (verdict.reason == grader::Reason::Budget) as usize;
        let Some(intended) = intended else { continue };
        let cell = table.entry((*intended, category.clone())).or_default();
        cell.0 += verdict.equal as usize;
        cell.1 += 1;
        if verdict.equal && !intended {
            println!("FALSE POSITIVE {category}: {pred}  |||  {gold}  ({:?})", verdict.reason);
        }
        if misses && !verdict.equal && *intended {
            println!("missed {category}: {pred}  |||  {gold}  ({:?})", verdict.reason);
        }
    }

    println!("\n{:<34} {:>8} {:>8} {:>8}", "category", "accepted", "of", "share");
    for ((intended, category), (yes, n)) in &table {
        let mark = if *intended { '=' } else { '≠' };
        println!("{mark} {category:<32} {yes:>8} {n:>8} {:>7.1}%", 100.0 * *yes as f64 / *n as f64);
    }
    for intended in [true, false] {
        let (yes, n) =
            table.iter().filter(|(k, _)| k.0 == intended).fold((0, 0), |a, (_, c)| (a.0 + c.0, a.1 + c.1));
        println!("intended {intended}: accepted {yes} of {n} ({:.2}%)", 100.0 * yes as f64 / n.max(1) as f64);
    }

    let (start, cpu) = (Instant::now(), cpu_seconds());
    let equal = pairs.iter().filter(|p| strict::equal(&p.1, &p.2).equal).count();
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{equal} equal of {} pairs in {seconds:.3} s: {:.0} pairs/s",
        pairs.len(),
        pairs.len() as f64 / seconds
    );
    if let (Some(a), Some(b)) = (cpu, cpu_seconds()) {
        println!("on the processor {:.3} s: {:.0} pairs/s", b - a, pairs.len() as f64 / (b - a));
    }
    slow.sort_by_key(|s| std::cmp::Reverse(s.0));
    for (t, pred, gold) in slow.iter().take(5) {
        let cut = |s: &str| s.chars().take(60).collect::<String>();
        println!("slowest {t:?}: {}  |||  {}", cut(pred), cut(gold));
    }
    println!("over budget: {budget}");
    ExitCode::SUCCESS
}

/// Seconds this thread has run on a processor, where the system says so.
fn cpu_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? * 1e-9)
}
