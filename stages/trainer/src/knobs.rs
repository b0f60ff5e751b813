//! Environment variables that choose how passes on a GPU are computed, for measurements and for finding a
//! fault. None changes more than rounding, speed and memory.

use std::sync::LazyLock;

use crate::TrainError;

/// What the variables say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) struct Knobs {
    /// `PIPELINE_PASS=burn`: passes go through burn.
    pub through_burn: bool,
    /// `PIPELINE_KERNELS=off`: tensor operations instead of kernels of our own.
    pub without_kernels: bool,
    /// `PIPELINE_PASS_GIGABYTES`: bytes that the memory of a pass beside burn may take.
    pub pass_bytes: Option<u64>,
    /// `PIPELINE_PASS_SCORES`: scores of a block of attention beside burn, at most.
    pub scores: Option<u64>,
}

static KNOBS: LazyLock<Result<Knobs, Problem>> = LazyLock::new(|| read(|name| std::env::var_os(name)));

/// The variables of this process; where one cannot be, which [`check`] refuses, those of none.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(crate) fn knobs() -> Knobs {
    KNOBS.clone().unwrap_or_default()
}

/// Refuses a variable that says nothing that could be followed.
///
/// # Errors
/// The first such variable and what to write.
pub(crate) fn check() -> Result<(), TrainError> {
    match KNOBS.clone() {
        Ok(_) => Ok(()),
        Err(Problem { name, value, remedy }) => {
            Err(TrainError::config(name, format!("the environment sets it to `{value}`"), remedy))
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Problem {
    name: &'static str,
    value: String,
    remedy: &'static str,
}

fn read(get: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Knobs, Problem> {
    // an empty variable is one that is not set
    let text = |name| get(name).map(|v| v.to_string_lossy().into_owned()).filter(|v| !v.is_empty());
    let is = |name: &'static str, only: &str, remedy| match text(name) {
        None => Ok(false),
        Some(value) if value == only => Ok(true),
        Some(value) => Err(Problem { name, value, remedy }),
    };
    const GIGABYTES: &str = "PIPELINE_PASS_GIGABYTES";
    let bytes = |value: String| match value.parse::<f64>() {
        Ok(gigabytes) if gigabytes.is_finite() && gigabytes > 0.0 => Ok((gigabytes * 1e9) as u64),
        _ => Err(Problem {
            name: GIGABYTES,
            value,
            remedy: "write a positive number such as 21.5, or unset it",
        }),
    };
    const SCORES: &str = "PIPELINE_PASS_SCORES";
    let count = |value: String| match value.parse::<u64>() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Problem { name: SCORES, value, remedy: "write a number such as 16777216, or unset it" }),
    };
    Ok(Knobs {
        through_burn: is("PIPELINE_PASS", "burn", "write `burn`, or unset it")?,
        without_kernels: is("PIPELINE_KERNELS", "off", "write `off`, or unset it")?,
        pass_bytes: text(GIGABYTES).map(bytes).transpose()?,
        scores: text(SCORES).map(count).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<Knobs, Problem> {
        read(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn variables_are_followed() {
        let none = Knobs::default();
        assert_eq!(read(|_| None), Ok(none));
        assert_eq!(of("PIPELINE_PASS", "burn"), Ok(Knobs { through_burn: true, ..none }));
        assert_eq!(of("PIPELINE_KERNELS", "off"), Ok(Knobs { without_kernels: true, ..none }));
        let bytes = Some(21_500_000_000);
        assert_eq!(of("PIPELINE_PASS_GIGABYTES", "21.5"), Ok(Knobs { pass_bytes: bytes, ..none }));
        assert_eq!(of("PIPELINE_PASS_GIGABYTES", ""), Ok(none));
        assert_eq!(of("PIPELINE_PASS_SCORES", "100"), Ok(Knobs { scores: Some(100), ..none }));
    }

    #[test]
    fn a_value_that_means_nothing_is_no_silent_default() {
        for (name, value) in [
            ("PIPELINE_PASS", "brun"),
            ("PIPELINE_KERNELS", "no"),
            ("PIPELINE_PASS_GIGABYTES", "21,5"),
            ("PIPELINE_PASS_GIGABYTES", "0"),
            ("PIPELINE_PASS_GIGABYTES", "-3"),
            ("PIPELINE_PASS_GIGABYTES", "inf"),
            ("PIPELINE_PASS_GIGABYTES", "nan"),
            ("PIPELINE_PASS_SCORES", "1e7"),
            ("PIPELINE_PASS_SCORES", "0"),
        ] {
            let problem = of(name, value).unwrap_err();
            assert_eq!((problem.name, &problem.value[..]), (name, value));
        }
    }
}
