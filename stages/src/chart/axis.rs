//! Ranges, ticks and the mapping from values to pixels.

/// One axis: a range of values laid over a range of pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    step: f64,
}

impl Axis {
    /// An axis that shows all values between whole ticks, on pixels from `start` to `end`, with
    /// about `ticks` ticks.
    pub fn around(values: impl IntoIterator<Item = f64>, start: f64, end: f64, ticks: usize) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.into_iter().filter(|v| v.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if high - low < 1e-12 * high.abs().max(1e-300) {
            let pad = if low == 0.0 { 1.0 } else { 0.1 * low.abs() };
            (low, high) = (low - pad, high + pad);
        }
        let step = nice_step((high - low) / ticks.max(1) as f64);
        Self {
            low: (low / step + 1e-9).floor() * step,
            high: (high / step - 1e-9).ceil() * step,
            start,
            end,
            step,
        }
    }

    /// An axis of steps: from the first to the last value exactly.
    pub fn exact(low: f64, high: f64, start: f64, end: f64, ticks: usize) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        let step = nice_step((high - low) / ticks.max(1) as f64).max(1.0);
        Self { low, high, start, end, step }
    }

    /// Keeps the range within limits that values cannot pass.
    pub fn within(mut self, low: f64, high: f64) -> Self {
        self.low = self.low.max(low);
        self.high = self.high.min(high);
        self
    }

    /// The pixel of a value.
    pub fn at(&self, value: f64) -> f64 {
        self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)
    }

    /// Values with a tick.
    pub fn ticks(&self) -> Vec<f64> {
        let first = (self.low / self.step - 1e-9).ceil();
        let last = (self.high / self.step + 1e-9).floor();
        (0..=(last - first).max(0.0) as usize).map(|i| (first + i as f64) * self.step).collect()
    }

    /// A tick's text, with the decimals that its step needs.
    pub fn label(&self, value: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        let size = self.high.abs().max(self.low.abs());
        if size >= 1e5 || size < 1e-4 {
            return format!("{value:.0e}");
        }
        let text = format!("{value:.decimals$}");
        let zero = text.trim_start_matches('-').chars().all(|c| c == '0' || c == '.');
        let text = if zero { text.trim_start_matches('-').to_owned() } else { text };
        text.replace('-', "−")
    }
}

/// The next of 1, 2, 5 · 10ⁿ from `raw` up.
fn nice_step(raw: f64) -> f64 {
    let power = 10f64.powf(raw.log10().floor());
    let lead = raw / power;
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|n| lead <= n * 1.000_001);
    nice.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let axis = Axis::around([0.42, 0.69], 0.0, 100.0, 5);
        let labels: Vec<String> = axis.ticks().into_iter().map(|t| axis.label(t)).collect();
        assert_eq!(labels, ["0.4", "0.5", "0.6", "0.7"]);
        assert_eq!(axis.at(0.55), 50.0);
        let axis = Axis::around([-3.0, 11.0], 0.0, 1.0, 4);
        let labels: Vec<String> = axis.ticks().into_iter().map(|t| axis.label(t)).collect();
        assert_eq!(labels, ["−5", "0", "5", "10", "15"]);
        assert_eq!(Axis::exact(1.0, 20.0, 0.0, 1.0, 5).ticks(), [5.0, 10.0, 15.0, 20.0]);
    }

    #[test]
    fn empty_and_constant_data_have_an_axis() {
        assert!(Axis::around([], 0.0, 1.0, 4).ticks().len() > 1);
        assert!(Axis::around([0.0], 0.0, 1.0, 4).at(0.0).is_finite());
        assert!(Axis::around([5.0, f64::NAN], 0.0, 1.0, 4).at(5.0).is_finite());
    }

    proptest! {
        #[test]
        fn every_value_lies_on_the_axis(values in prop::collection::vec(-1e6f64..1e6, 1..20)) {
            let axis = Axis::around(values.iter().copied(), 10.0, 90.0, 5);
            let ticks = axis.ticks().len();
            prop_assert!((2..=12).contains(&ticks), "{} ticks", ticks);
            for value in values {
                prop_assert!((9.999..=90.001).contains(&axis.at(value)));
            }
        }
    }
}
