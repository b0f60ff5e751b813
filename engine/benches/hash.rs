//! Speed of digests: `cargo bench -p engine --bench hash [-- SIZE_MB]`.
//!
//! Compares, in one run over one file in the page cache, this crate's `file_digest` with BLAKE3's
//! own memory-mapped, multi-threaded hashing (what `b3sum` does) and with one thread reading in
//! blocks; then a second look through the memo, which must not read the file.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime};

use engine::digest::{Memo, file_digest};

const ROUNDS: usize = 7;

fn best(mut work: impl FnMut()) -> f64 {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..ROUNDS).map(|_| time(&mut work)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let megabytes: usize = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(512);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("file");
    let block: Vec<u8> = (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut file = File::create(&path).expect("a file");
    (0..megabytes).for_each(|_| file.write_all(&block).expect("space for the file"));
    // Settled: the memo trusts no file touched within two seconds.
    file.set_modified(SystemTime::now() - Duration::from_secs(60)).expect("file times");
    drop(file);
    std::thread::sleep(Duration::from_millis(2500));

    let gigabytes = megabytes as f64 / 1000.0 * 1.048_576;
    let report = |name: &str, seconds: f64, reference: f64| {
        println!("{name:<34} {:>8.2} GB/s {:>6.2} of b3sum's way", gigabytes / seconds, reference / seconds);
    };
    let mapped = best(|| {
        let mut hasher = blake3::Hasher::new();
        hasher.update_mmap_rayon(&path).expect("readable");
        std::hint::black_box(hasher.finalize());
    });
    report("memory-mapped, all cores (b3sum)", mapped, mapped);
    let ours = best(|| {
        std::hint::black_box(file_digest(&path).expect("readable"));
    });
    report("file_digest", ours, mapped);
    let single = best(|| {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(&path).expect("readable")).expect("readable");
        std::hint::black_box(hasher.finalize());
    });
    report("one thread, read in blocks", single, mapped);
    let memo = Memo::in_memory();
    memo.file_digest(&path).expect("readable");
    let again = best(|| {
        std::hint::black_box(memo.file_digest(&path).expect("readable"));
    });
    println!("{:<34} {:>8.1} µs, nothing read", "file_digest through the memo", again * 1e6);
}
