//! `fetch`: brings files from outside, once, pinned by digest.
//!
//! - [`http`]: one resumable download
//! - [`hub`]: repositories of the Hugging Face hub, over its plain HTTP interface
//! - [`mirror`]: local folders that stand in for the network
//! - [`archive`]: one file out of a zip archive
//!
//! The `hf-hub` crate (1.0) is not used: it brings tokio, reqwest, hyper and the Xet client, keeps a
//! second copy of every file in a cache of its own, and cannot resume into a stage's state folder.

mod archive;
mod http;
mod hub;
mod mirror;

use std::path::{Path, PathBuf};

use engine::digest::{Memo, path_digest};
use engine::kind::{ParamProblem, Pin, Stage, StageCtx, StageError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use hub::Hub;

/// Brings a file or a repository from outside and pins its digest in the lock file.
///
/// Sources:
/// - `https://…`, `http://…`: one file
/// - `file:///…`: a file or folder by absolute path
/// - `hf:OWNER/NAME`, `hf:datasets/OWNER/NAME`: a model or data set repository of the Hugging
///   Face hub. `HF_TOKEN` and `HF_ENDPOINT` are honoured; the token goes to that endpoint only.
///
/// The first fetch writes the digest (and the hub's commit) to `NAME.lock` beside the manifest;
/// later fetches must bring the same content. Interrupted downloads go on where they stopped.
/// `--mirror PREFIX=FOLDER` puts a local folder in the place of every source that begins with
/// PREFIX, and `--offline` uses nothing else.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fetch {
    /// Where it comes from.
    pub source: String,
    /// Branch, tag or commit of a hub repository. Left out: `main`, or the pinned commit.
    #[serde(default)]
    pub revision: Option<String>,
    /// Files of a repository to bring, as patterns such as `"*.safetensors"`. Empty: all.
    #[serde(default)]
    pub files: Vec<String>,
    /// BLAKE3 digest (64 hex digits) that the file or folder must have.
    #[serde(default)]
    pub digest: Option<String>,
    /// Name of the fetched file. Left out: the last part of the source (or of `member`).
    #[serde(default)]
    pub rename: Option<String>,
    /// The source is a zip archive (a Python wheel is one), and this file in it is all that is kept.
    #[serde(default)]
    pub member: Option<String>,
}

/// What kind of place a source names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    /// A URL.
    Web(&'a str),
    /// An absolute path.
    Local(&'a str),
    /// A repository, with the `hf:` taken off.
    Hub(&'a str),
}

impl Fetch {
    fn place(&self) -> Option<Place<'_>> {
        let source = self.source.as_str();
        if source.starts_with("https://") || source.starts_with("http://") {
            return Some(Place::Web(source));
        }
        if let Some(path) = source.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return path.starts_with('/').then_some(Place::Local(path));
        }
        source.strip_prefix("hf:").map(Place::Hub)
    }

    /// The fetched file's name, for sources that are one file.
    fn file_name(&self) -> Option<String> {
        if let Some(name) = &self.rename {
            return Some(name.clone());
        }
        if let Some(member) = &self.member {
            return member.rsplit('/').next().map(str::to_owned);
        }
        self.source_name()
    }

    /// The last part of a source that is one file.
    fn source_name(&self) -> Option<String> {
        let path = match self.place()? {
            Place::Web(url) => url.split(['?', '#']).next()?.splitn(4, '/').nth(3)?,
            Place::Local(path) => path,
            Place::Hub(_) => return None,
        };
        let name = path.trim_end_matches('/').rsplit('/').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    }

    /// The name in the lock file: everything that decides what is fetched.
    fn pin_name(&self) -> String {
        let mut name = self.source.clone();
        if let Some(revision) = &self.revision {
            name += &format!("@{revision}");
        }
        if !self.files.is_empty() {
            name += &format!("#{}", self.files.join(","));
        }
        if let Some(member) = &self.member {
            name += &format!("#{member}");
        }
        name
    }

    fn patterns(&self) -> Result<Vec<glob::Pattern>, String> {
        let parse = |p: &String| glob::Pattern::new(p).map_err(|e| format!("`{p}`: {e}"));
        self.files.iter().map(parse).collect()
    }

    /// Brings the content into `ctx.out()`; returns what to digest, and the hub's commit.
    fn bring(&self, ctx: &StageCtx, hub: &Hub) -> Result<(PathBuf, Option<String>), StageError> {
        let place = self.place().ok_or_else(|| StageError::input(UNKNOWN_SOURCE))?;
        let patterns = self.patterns().map_err(StageError::input)?;
        let name = match self.member {
            Some(_) => Some(ARCHIVE.to_owned()),
            None => self.file_name(),
        };
        if let Some(local) = mirror::lookup(ctx.access(), &self.source) {
            ctx.message(format!("{} comes from a mirror", http::shown(&self.source)));
            return Ok((mirror::copy(ctx, &local, name.as_deref(), &patterns)?, None));
        }
        match place {
            Place::Local(path) => {
                let copied = mirror::copy(ctx, Path::new(path), name.as_deref(), &patterns)?;
                Ok((copied, None))
            }
            _ if ctx.access().offline => Err(StageError::environment(format!(
                "offline, and no mirror has {}",
                http::shown(&self.source)
            ))
            .with_help("run once without --offline, or give --mirror PREFIX=FOLDER")),
            Place::Web(url) => {
                let name = name.ok_or_else(|| StageError::input(NO_NAME))?;
                let request = http::Request::to(url);
                let file = http::download(ctx, &request, &name, &mut http::Total::default())?;
                let dest = ctx.out().join(&name);
                http::move_file(&file, &dest)?;
                Ok((dest, None))
            }
            Place::Hub(repository) => {
                let pinned = ctx.pin(&self.pin_name()).and_then(|pin| pin.revision.as_deref());
                let revision = pinned.or(self.revision.as_deref()).unwrap_or("main");
                let commit = hub.fetch(ctx, repository, revision, &patterns)?;
                Ok((ctx.out().to_owned(), Some(commit)))
            }
        }
    }

    fn fetch(&self, ctx: &StageCtx, hub: &Hub) -> Result<(), StageError> {
        let (mut path, revision) = self.bring(ctx, hub)?;
        if let Some(member) = &self.member {
            let wanted = ctx.out().join(self.file_name().unwrap_or_default());
            archive::take(ctx, &path, member, &wanted)?;
            path = wanted;
        }
        let digest = path_digest(&path, &Memo::in_memory())
            .map_err(|e| StageError::environment(format!("{e}")))?
            .to_string();
        let name = self.pin_name();
        let pin = ctx.pin(&name);
        let expectations = [
            (self.digest.as_deref(), "the manifest", "correct `digest`"),
            (
                pin.map(|pin| pin.digest.as_str()),
                "the lock file",
                "if the new content is right, remove this source from the lock file",
            ),
        ];
        for (expected, place, remedy) in expectations {
            if let Some(expected) = expected.filter(|e| !e.eq_ignore_ascii_case(&digest)) {
                return Err(StageError::input(format!(
                    "{} has digest {digest}, but {place} says {expected}",
                    http::shown(&self.source)
                ))
                .with_help(remedy));
            }
        }
        if pin.is_none() {
            ctx.set_pin(&name, Pin { digest, revision });
        }
        Ok(())
    }
}

/// What an archive is called until its member is taken out.
const ARCHIVE: &str = ".archive";
const UNKNOWN_SOURCE: &str = "not a source";
const NO_NAME: &str = "the URL names no file";

impl Stage for Fetch {
    const KIND: &'static str = "fetch";
    const VERSION: u32 = 1;

    fn outputs(&self) -> Vec<String> {
        match self.file_name() {
            Some(name) => vec![name],
            // Of a repository only names without wildcards are known beforehand.
            None => {
                let plain = |name: &&String| !name.contains(['*', '?', '[']);
                self.files.iter().filter(plain).cloned().collect()
            }
        }
    }

    fn has_more_outputs(&self) -> bool {
        self.file_name().is_none()
    }

    fn check(&self) -> Vec<ParamProblem> {
        let mut problems = Vec::new();
        let mut add = |param: &str, message: &str, help: &str| {
            problems.push(ParamProblem { param: param.into(), message: message.into(), help: help.into() });
        };
        let place = self.place();
        match place {
            None => add(
                "source",
                UNKNOWN_SOURCE,
                "write https://…, file:///… with an absolute path, hf:OWNER/NAME or hf:datasets/OWNER/NAME",
            ),
            Some(Place::Web(url)) if http::has_credentials(url) => add(
                "source",
                "credentials in a URL would reach keys, logs and the lock file",
                "leave them out; use a mirror for what needs a login",
            ),
            Some(Place::Hub(repository)) if hub::repository(repository).is_none() => {
                add("source", "not a hub repository", "write hf:OWNER/NAME or hf:datasets/OWNER/NAME")
            }
            Some(Place::Web(_) | Place::Local(_)) if self.file_name().is_none() => {
                add("source", NO_NAME, "give `rename = \"…\"`")
            }
            Some(_) => {}
        }
        if self.revision.is_some() && !matches!(place, Some(Place::Hub(_))) {
            add("revision", "only hub repositories have revisions", "remove it");
        }
        if !self.files.is_empty() && matches!(place, Some(Place::Web(_))) {
            add("files", "a URL is one file", "remove it");
        }
        if self.rename.is_some() && matches!(place, Some(Place::Hub(_))) {
            add("rename", "a repository keeps its names", "remove it");
        }
        if self.rename.as_deref().is_some_and(|name| !mirror::is_plain_path(name)) {
            add("rename", "not a file name", "write a relative name without `..`");
        }
        if let Some(member) = &self.member {
            if matches!(place, Some(Place::Hub(_))) {
                add("member", "a repository is no archive", "name the file in `files`");
            }
            if !mirror::is_plain_path(member) {
                add("member", "not a file in an archive", "write its path as the archive lists it");
            }
        }
        if let Err(message) = self.patterns() {
            add("files", &message, "correct the pattern");
        }
        let is_digest = |d: &str| d.len() == 64 && d.bytes().all(|b| b.is_ascii_hexdigit());
        if self.digest.as_deref().is_some_and(|d| !is_digest(d)) {
            add("digest", "not a BLAKE3 digest", "write 64 hex digits, as b3sum prints them");
        }
        problems
    }

    fn sources(&self) -> Vec<String> {
        vec![self.pin_name()]
    }

    fn run(&self, ctx: &StageCtx) -> Result<(), StageError> {
        self.fetch(ctx, &Hub::from_environment())
    }
}

#[cfg(test)]
mod test_server;
#[cfg(test)]
mod tests;
