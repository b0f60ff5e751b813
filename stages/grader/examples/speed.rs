//! Pairs graded per second on one core.
//!
//!     cargo run --release -p grader --example speed -- pairs.jsonl [ROUNDS]
//!
//! Figures are per second of processor time, so that a busy machine does not change them much.

use std::hint::black_box;
use std::time::Instant;

use serde_json::Value;

/// User and system time of this process in seconds, where the system tells.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / 100.0)
}

fn measure(name: &str, pairs: usize, rounds: usize, mut f: impl FnMut()) {
    let (wall, cpu) = (Instant::now(), cpu_seconds());
    (0..rounds).for_each(|_| f());
    let wall = wall.elapsed().as_secs_f64();
    let cpu = cpu.zip(cpu_seconds()).map_or(wall, |(a, b)| b - a);
    let rate = (pairs * rounds) as f64 / cpu;
    println!("{name:<28} {rate:>10.0} pairs/s   ({wall:.2} s wall, {cpu:.2} s processor)");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("which file of pairs?")?;
    let rounds: usize = args.next().map_or(Ok(10), |r| r.parse())?;
    let text = std::fs::read_to_string(file)?;
    let rows: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let field = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_string();
    let rows: Vec<[String; 5]> = rows
        .iter()
        .map(|r| ["pred", "gold", "data_name", "pred_stripped", "gold_stripped"].map(|k| field(r, k)))
        .collect();
    let n = rows.len();
    measure("qwen: strip, twice", n, rounds, || {
        for [pred, ..] in &rows {
            let once = grader::qwen::strip::strip_string(pred, false);
            black_box(grader::qwen::strip::strip_string(&once, false));
        }
    });
    measure("qwen: math_equal", n, rounds, || {
        for [_, _, _, pred, gold] in &rows {
            black_box(grader::qwen::equal::math_equal(pred, gold));
        }
    });
    measure("qwen: from the raw pair", n, rounds, || {
        for [pred, gold, data_name, ..] in &rows {
            let gold = grader::qwen::gold::parse_ground_truth(gold, data_name);
            let answer = grader::extract::normalised(pred, data_name);
            let pred = grader::qwen_prediction(&answer, pred, &gold, data_name);
            black_box(grader::qwen::equal::math_equal(&pred, &gold));
        }
    });
    measure("strict", n, rounds, || {
        for [pred, gold, ..] in &rows {
            black_box(grader::strict::equal(pred, gold));
        }
    });
    measure("both, from the raw pair", n, rounds, || {
        for [pred, gold, data_name, ..] in &rows {
            black_box(grader::grade_answer(pred, gold, data_name));
        }
    });
    Ok(())
}
