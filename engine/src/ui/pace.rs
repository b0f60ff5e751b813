//! How fast a stage goes, and how long it still takes.

use std::time::Duration;

use super::text::seconds;

/// Before this long nothing sensible can be said.
const WARM_UP: Duration = Duration::from_secs(1);

/// Progress from the first report of an attempt on; what an earlier attempt had done says nothing
/// about this one's speed.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    done_at_start: u64,
}

impl Pace {
    /// The pace of a stage whose first report was `done`.
    pub fn new(done: u64) -> Self {
        Self { done_at_start: done }
    }

    /// `35/200 questions, 2.4/s, 69 s left`.
    pub fn describe(&self, done: u64, total: u64, unit: &str, since_start: Duration) -> String {
        let bytes = unit == "bytes";
        let amount = match bytes {
            true => format!("{}/{}", size(done as f64), size(total as f64)),
            false => format!("{done}/{total} {unit}"),
        };
        let new = done.saturating_sub(self.done_at_start);
        if new == 0 || since_start < WARM_UP {
            return amount;
        }
        let rate = new as f64 / since_start.as_secs_f64();
        let speed = if bytes { format!("{}/s", size(rate)) } else { per_second(rate) };
        match total.saturating_sub(done) {
            0 => format!("{amount}, {speed}"),
            left => format!("{amount}, {speed}, {} left", seconds(left as f64 / rate)),
        }
    }
}

fn per_second(rate: f64) -> String {
    match rate {
        rate if rate >= 10.0 => format!("{rate:.0}/s"),
        rate if rate >= 0.5 => format!("{rate:.1}/s"),
        rate => format!("{} each", seconds(1.0 / rate)),
    }
}

fn size(bytes: f64) -> String {
    let (mut value, mut unit) = (bytes, "B");
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 1000.0 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    if unit == "B" { format!("{value:.0} B") } else { format!("{value:.1} {unit}") }
}

/// A metric with four digits that say something.
pub fn metric(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e5).contains(&size) => format!("{value:.4}"),
        size if size.is_finite() => format!("{value:.2e}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumed_work_does_not_count_as_speed() {
        let pace = Pace::new(100);
        let after = |done, seconds| pace.describe(done, 200, "steps", Duration::from_secs_f64(seconds));
        assert_eq!(after(100, 5.0), "100/200 steps");
        assert_eq!(after(101, 0.2), "101/200 steps");
        assert_eq!(after(120, 10.0), "120/200 steps, 2.0/s, 40 s left");
        assert_eq!(after(101, 10.0), "101/200 steps, 10 s each, 16 min 30 s left");
        assert_eq!(after(200, 2.0), "200/200 steps, 50/s");
    }

    #[test]
    fn bytes_have_sizes() {
        let shown = Pace::new(0).describe(1_500_000, 3_000_000_000, "bytes", Duration::from_secs(2));
        assert_eq!(shown, "1.5 MB/3.0 GB, 750.0 kB/s, 66 min 38 s left");
    }

    #[test]
    fn metrics_show_small_and_large_values() {
        let shown = [0.5, 1e-5, 123_456.0, 0.0, f64::NAN].map(metric);
        assert_eq!(shown, ["0.5000", "1.00e-5", "1.23e5", "0", "NaN"]);
    }
}
