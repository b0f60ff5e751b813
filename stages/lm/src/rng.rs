//! Counter-based random numbers: a value is a pure function of `(seed, stream, counter)`.
//!
//! burn's generator is one process-wide stream, so what it yields depends on everything else that
//! draws. Here nothing is drawn: every value has an address, and the order of evaluation, the batch
//! and the thread that asks do not matter. The mixing function is SplitMix64's finaliser
//! (Steele, Lea, Flood 2014, variant 13), applied to a counter under a key mixed from seed and stream.

/// One addressable sequence of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    key: u64,
}

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Stream {
    /// The sequence number `stream` under `seed`.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self { key: mix(seed.wrapping_add(GOLDEN)) ^ mix(stream.wrapping_mul(GOLDEN).wrapping_add(1)) }
    }

    /// The sequence named `name` under `seed`, for streams that have a name and no number.
    pub fn named(seed: u64, name: &str) -> Self {
        // FNV-1a: short, stable across versions and platforms.
        let hash = name
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01B3));
        Self::new(seed, hash)
    }

    /// 64 random bits at `counter`.
    pub fn bits(self, counter: u64) -> u64 {
        mix(mix(self.key.wrapping_add(counter.wrapping_mul(GOLDEN))).wrapping_add(self.key))
    }

    /// A uniform number in the open interval (0, 1) at `counter`.
    pub fn uniform(self, counter: u64) -> f64 {
        ((self.bits(counter) >> 11) as f64 + 0.5) * (1.0 / (1u64 << 53) as f64)
    }

    /// A standard normal number at `counter` (Box-Muller; a counter yields one number).
    pub fn normal(self, counter: u64) -> f64 {
        let radius = (-2.0 * self.uniform(2 * counter).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * counter + 1)).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_addressed_not_drawn() {
        let stream = Stream::new(7, 3);
        let forward: Vec<u64> = (0..100).map(|i| stream.bits(i)).collect();
        let mut backward: Vec<u64> = (0..100).rev().map(|i| stream.bits(i)).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        assert_ne!(Stream::new(7, 4).bits(0), stream.bits(0));
        assert_ne!(Stream::new(8, 3).bits(0), stream.bits(0));
        assert_ne!(Stream::named(7, "a"), Stream::named(7, "b"));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        // 100,000 values: the standard error of a mean of uniforms is 0.0009, of normals 0.0032,
        // of the variance of normals 0.0045; the bounds are five of them.
        let n = 100_000u64;
        let stream = Stream::new(1, 2);
        let mean_u = (0..n).map(|i| stream.uniform(i)).sum::<f64>() / n as f64;
        assert!((mean_u - 0.5).abs() < 0.0046, "{mean_u}");
        let normals: Vec<f64> = (0..n).map(|i| stream.normal(i)).collect();
        let mean = normals.iter().sum::<f64>() / n as f64;
        let var = normals.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.016, "{mean}");
        assert!((var - 1.0).abs() < 0.023, "{var}");
        // neighbours are uncorrelated
        let corr = normals.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n as f64;
        assert!(corr.abs() < 0.016, "{corr}");
    }

    #[test]
    fn streams_of_neighbouring_seeds_are_uncorrelated() {
        let n = 100_000u64;
        for (a, b) in [((1, 0), (2, 0)), ((1, 0), (1, 1)), ((0, 0), (0, 1))] {
            let (a, b) = (Stream::new(a.0, a.1), Stream::new(b.0, b.1));
            let corr = (0..n).map(|i| a.normal(i) * b.normal(i)).sum::<f64>() / n as f64;
            assert!(corr.abs() < 0.016, "{corr}");
        }
    }
}
