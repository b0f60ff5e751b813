//! SIGKILL at random moments, to the engine and to workers alike: every following run completes,
//! and every digest is that of an uninterrupted run. `CHAOS_KILLS` sets how many (default 20).

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{Place, Ran, signal};

/// Trivial and resumable stages, four wide and five deep.
fn manifest() -> String {
    let mut text = String::new();
    for column in 0..4 {
        text +=
            &format!("[stage.s0x{column}]\nkind = \"write\"\ntext = \"start {column}\"\nmore = [\"more\"]\n");
    }
    for row in 1..5 {
        for column in 0..4 {
            let (left, right) = (column, (column + row) % 4);
            let before = row - 1;
            text += &match (row + column) % 2 {
                0 => format!(
                    "[stage.s{row}x{column}]\nkind = \"count\"\nto = 8\nmilliseconds = 8\nfrom = \"@s{before}x{left}\"\n"
                ),
                _ => format!(
                    "[stage.s{row}x{column}]\nkind = \"concat\"\nprefix = \"{row} {column} \"\nmilliseconds = 10\nfrom = {{ left = \"@s{before}x{left}\", right = \"@s{before}x{right}\" }}\n"
                ),
            };
        }
    }
    text + "[stage.end]\nkind = \"concat\"\nfrom = { a = \"@s4x0\", b = \"@s4x1\", c = \"@s4x2\", d = \"@s4x3\" }\npublish = \"end\"\n"
}

/// A small linear congruential generator: the moments should differ, not be good.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.collect::<String>().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn kills_at_random_moments_change_no_digest() {
    let kills: usize = std::env::var("CHAOS_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(20);
    let clean = Place::new(&manifest());
    let began = Instant::now();
    let expected = clean.succeed(&["--jobs", "3"]).outputs();
    let whole = began.elapsed();
    let published = clean.read("results/toy/end/out.txt");
    assert_eq!(expected.len(), 21);

    let mut random = Random(kills as u64);
    let mut place = Place::new(&manifest());
    let (mut done, mut completed) = (0, 0);
    while done < kills {
        let mut engine = place.start(&["--jobs", "3"]);
        std::thread::sleep(Duration::from_micros(random.below(whole.as_micros() as u64 / 2)));
        // Engine and workers in turn; a moment without a worker moves on to the next with one.
        let victim = loop {
            if engine.try_wait().unwrap().is_some() {
                break None;
            }
            let workers = children(engine.id());
            match (done % 2, workers.len()) {
                (0, _) => break Some(engine.id()),
                (_, 0) => std::thread::sleep(Duration::from_millis(1)),
                (_, count) => break Some(workers[random.below(count as u64) as usize]),
            }
        };
        if let Some(victim) = victim {
            signal(victim, libc::SIGKILL);
            done += 1;
        }
        let output = engine.wait_with_output().unwrap();
        // A run that got through has to be right, and the next one starts afresh.
        if output.status.success() {
            completed += 1;
            assert_eq!(Ran::of(output).outputs(), expected, "after {done} kills");
            place = Place::new(&manifest());
        } else if done % 10 == 0 || done == kills {
            let ran = place.succeed(&["--jobs", "3"]);
            assert_eq!(ran.outputs(), expected, "after {done} kills");
            assert_eq!(place.read("results/toy/end/out.txt"), published);
            place = Place::new(&manifest());
        }
    }
    eprintln!("{kills} kills, every second on a worker; {completed} runs completed in spite of theirs");
}
