//! Repositories of the Hugging Face hub: a revision is resolved to a commit, its files are listed
//! and brought from the commit's `resolve` addresses.

use engine::kind::{StageCtx, StageError};
use serde::Deserialize;

use super::http::{self, Request, Total};
use super::mirror::{is_plain_path, wanted};

/// Where the hub is and who asks.
pub struct Hub {
    endpoint: String,
    token: Option<String>,
}

/// The hub's answer about a revision.
#[derive(Deserialize)]
struct Revision {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    #[serde(default)]
    size: Option<u64>,
}

/// The two forms of a repository's name: for the interface (`models/a/b`) and for files (`a/b`).
pub fn repository(name: &str) -> Option<(String, String)> {
    let bare = name.strip_prefix("datasets/").unwrap_or(name);
    let valid = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let (owner, repository) = bare.split_once('/')?;
    if !valid(owner) || !valid(repository) {
        return None;
    }
    let interface = if bare == name { format!("models/{name}") } else { name.to_owned() };
    Some((interface, name.to_owned()))
}

impl Hub {
    /// A hub at an address.
    pub fn new(endpoint: &str, token: Option<String>) -> Self {
        Self {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: token.map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()),
        }
    }

    /// As `HF_ENDPOINT` and `HF_TOKEN` say.
    pub fn from_environment() -> Self {
        let endpoint = std::env::var("HF_ENDPOINT").ok().filter(|e| !e.is_empty());
        Self::new(endpoint.as_deref().unwrap_or("https://huggingface.co"), std::env::var("HF_TOKEN").ok())
    }

    /// Brings the wanted files of a revision into `ctx.out()`; returns the commit.
    pub fn fetch(
        &self,
        ctx: &StageCtx,
        name: &str,
        revision: &str,
        patterns: &[glob::Pattern],
    ) -> Result<String, StageError> {
        let (interface, files) =
            repository(name).ok_or_else(|| StageError::input(format!("`{name}` is no repository")))?;
        // A branch name may hold slashes, which must not end the path segment.
        let revision = revision.replace('/', "%2F");
        let address = format!("{}/api/{interface}/revision/{revision}?blobs=true", self.endpoint);
        let answer = http::get_text(&self.request(&address))?;
        let found: Revision = serde_json::from_str(&answer).map_err(|e| {
            StageError::environment(format!("{}: unexpected answer: {e}", http::shown(&address)))
                .with_help("is HF_ENDPOINT a hub?")
        })?;
        let (chosen, others): (Vec<Sibling>, Vec<Sibling>) =
            found.siblings.into_iter().partition(|file| wanted(&file.rfilename, patterns));
        if chosen.is_empty() {
            let names: Vec<String> = others.into_iter().map(|file| file.rfilename).collect();
            return Err(StageError::input(format!("hf:{name} has no file that `files` asks for"))
                .with_help(format!("it has {}", names.join(", "))));
        }
        let mut total = Total { done: 0, all: chosen.iter().map(|file| file.size).sum() };
        for file in &chosen {
            if !is_plain_path(&file.rfilename) {
                return Err(StageError::input(format!(
                    "hf:{name} has a file with an unsafe name: {:?}",
                    file.rfilename
                )));
            }
            let url = format!("{}/{files}/resolve/{}/{}", self.endpoint, found.sha, escaped(&file.rfilename));
            let request = self.request(&url).immutable(file.size);
            // Below the commit, so that files of an earlier attempt at another commit are not used.
            let place = format!("{}/{}", found.sha, file.rfilename);
            http::download(ctx, &request, &place, &mut total)?;
        }
        for file in &chosen {
            let from = ctx.state().join(&found.sha).join(&file.rfilename);
            http::move_file(&from, &ctx.out().join(&file.rfilename))?;
        }
        Ok(found.sha)
    }

    fn request(&self, url: &str) -> Request {
        Request::to(url).with_token(self.token.as_deref())
    }
}

/// A path with everything but plain characters and slashes percent-encoded.
fn escaped(path: &str) -> String {
    path.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' | b'/' => {
                (b as char).to_string()
            }
            _ => format!("%{b:02X}"),
        })
        .collect()
}
