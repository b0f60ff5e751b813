//! What an evaluation has finished so far.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::Path;

use engine::kind::StageError;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::questions::Question;
use crate::samples::{Retried, Sample};

/// Finished samples, appended as they come so that a killed evaluation keeps them.
pub struct Journal {
    file: File,
    samples: Vec<(Sample, f64)>,
    done: BTreeSet<(String, u32)>,
    resumed: usize,
}

#[derive(Serialize, Deserialize)]
struct Line {
    /// Seconds since generation began in the process that made it.
    seconds: f64,
    sample: Sample,
}

impl Journal {
    /// Opens the journal of an evaluation; one that does not exist is empty.
    pub fn open(path: &Path) -> Result<Self, StageError> {
        let text = fs::read_to_string(path).unwrap_or_default();
        // A line that a kill cut short is dropped, with everything after it.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        let lines: Vec<Line> = whole.lines().map_while(|line| serde_json::from_str(line).ok()).collect();
        let kept: usize = whole.lines().take(lines.len()).map(|line| line.len() + 1).sum();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            .map_err(|error| StageError::io(path, error))?;
        let mut journal = Self { file, samples: Vec::new(), done: BTreeSet::new(), resumed: lines.len() };
        journal.cut(kept as u64).map_err(|error| StageError::io(path, error))?;
        for line in lines {
            journal.done.insert((line.sample.id.clone(), line.sample.sample));
            journal.samples.push((line.sample, line.seconds));
        }
        Ok(journal)
    }

    fn cut(&mut self, length: u64) -> std::io::Result<()> {
        use std::io::{Seek, SeekFrom};
        self.file.set_len(length)?;
        self.file.seek(SeekFrom::End(0)).map(drop)
    }

    /// How many samples are finished.
    pub fn len(&self) -> usize {
        self.done.len()
    }

    /// Whether a question's sample of that number is finished.
    pub fn has(&self, id: &str, number: u32) -> bool {
        self.done.contains(&(id.to_owned(), number))
    }

    /// The finished samples, in the order in which they came.
    pub fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().map(|(sample, _)| sample)
    }

    /// Adds a sample that was finished so many seconds after generation began.
    pub fn add(&mut self, sample: Sample, seconds: f64) -> Result<(), StageError> {
        let line = Line { seconds, sample };
        let mut text = serde_json::to_vec(&line).map_err(StageError::input)?;
        text.push(b'\n');
        self.file
            .write_all(&text)
            .map_err(|error| StageError::environment(format!("cannot keep a finished sample: {error}")))?;
        self.done.insert((line.sample.id.clone(), line.sample.sample));
        self.samples.push((line.sample, seconds));
        Ok(())
    }

    /// Writes the samples in the order of the questions, each with its second answer, if any.
    pub fn write(&self, questions: &[Question], retries: &Journal, path: &Path) -> Result<(), StageError> {
        let place: BTreeMap<&str, usize> =
            questions.iter().enumerate().map(|(at, question)| (question.id.as_str(), at)).collect();
        let again: BTreeMap<(&str, u32), &Sample> =
            retries.samples().map(|sample| ((sample.id.as_str(), sample.sample), sample)).collect();
        let mut samples: Vec<Sample> = self.samples().cloned().collect();
        samples.sort_by_key(|sample| (place.get(sample.id.as_str()).copied(), sample.sample));
        let file = File::create(path).map_err(|error| StageError::io(path, error))?;
        let mut file = BufWriter::new(file);
        for mut sample in samples {
            let retry = again.get(&(sample.id.as_str(), sample.sample));
            sample.retry = retry.map(|retry| Retried { text: retry.text.clone(), tokens: retry.tokens });
            serde_json::to_writer(&mut file, &sample).map_err(StageError::environment)?;
            file.write_all(b"\n").map_err(|error| StageError::io(path, error))?;
        }
        file.flush().map_err(|error| StageError::io(path, error))
    }

    /// Tokens, seconds and rate of the process that finished the evaluation.
    pub fn timing(&self) -> serde_json::Value {
        let new = &self.samples[self.resumed.min(self.samples.len())..];
        let tokens: u64 = new.iter().map(|(sample, _)| u64::from(sample.tokens)).sum();
        let seconds = new.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        let rate = if seconds > 0.0 { Some(tokens as f64 / seconds) } else { None };
        json!({
            "samples": new.len(),
            "resumed_samples": self.resumed,
            "tokens": tokens,
            "seconds": seconds,
            "tokens_per_second": rate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(id: &str) -> Sample {
        let line = json!({"id": id, "gold": "1", "text": "t", "tokens": 3});
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn a_journal_cut_short_keeps_whole_lines_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("samples.jsonl");
        let mut journal = Journal::open(&path).unwrap();
        for id in ["a", "b", "c"] {
            journal.add(sample(id), 1.0).unwrap();
        }
        let text = fs::read(&path).unwrap();
        for cut in 0..text.len() {
            fs::write(&path, &text[..cut]).unwrap();
            let mut journal = Journal::open(&path).unwrap();
            let kept = text[..cut].iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(journal.done.len(), kept);
            for id in &["a", "b", "c"][kept..] {
                journal.add(sample(id), 1.0).unwrap();
            }
            assert_eq!(fs::read(&path).unwrap(), text, "cut at {cut}");
        }
    }
}
