//! One download that survives interruption: bytes are kept in the stage's state folder, and the
//! next attempt asks for the rest.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use engine::kind::{StageCtx, StageError};
use ureq::Agent;
use ureq::http::{HeaderMap, Response};
use ureq::tls::{RootCerts, TlsConfig};

/// A server silent for longer than this has gone.
const SILENCE: Duration = Duration::from_secs(60);
/// Redirects followed.
const REDIRECTS: usize = 10;
/// Attempts that bring nothing new before a download is given up.
const FRUITLESS: u32 = 2;

static AGENT: LazyLock<Agent> = LazyLock::new(|| {
    Agent::config_builder()
        .http_status_as_error(false)
        // Followed by hand in `call`, where the token's way is decided.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(SILENCE))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .user_agent(concat!("pipeline/", env!("CARGO_PKG_VERSION")))
        // The system's certificates, so that networks with their own authority work.
        .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
        .build()
        .into()
});

/// What to ask for.
pub struct Request {
    url: String,
    token: Option<String>,
    /// True for a URL whose content never changes (it names a commit).
    immutable: bool,
    /// Size in bytes, where known beforehand.
    size: Option<u64>,
}

impl Request {
    /// A plain request.
    pub fn to(url: &str) -> Self {
        Self { url: url.to_owned(), token: None, immutable: false, size: None }
    }
    /// Adds a bearer token.
    pub fn with_token(mut self, token: Option<&str>) -> Self {
        self.token = token.map(str::to_owned);
        self
    }
    /// The content behind the URL never changes and has this size.
    pub fn immutable(mut self, size: Option<u64>) -> Self {
        self.immutable = true;
        self.size = size;
        self
    }
}

/// Bytes over all files of a stage, for progress.
#[derive(Default)]
pub struct Total {
    /// Bytes of files already here.
    pub done: u64,
    /// Bytes of all files, when known.
    pub all: Option<u64>,
}

/// Downloads to `state/NAME` and returns that path. What an earlier attempt left is used.
pub fn download(
    ctx: &StageCtx,
    request: &Request,
    name: &str,
    total: &mut Total,
) -> Result<PathBuf, StageError> {
    let path = ctx.state().join(name);
    let part = ctx.state().join(format!("{name}.part"));
    if !path.exists() {
        let parent = path.parent().unwrap_or(ctx.state());
        fs::create_dir_all(parent).map_err(|e| StageError::io(parent, e))?;
        let (mut fruitless, mut before) = (0, size_of(&part));
        loop {
            match attempt(ctx, request, &part, total) {
                Ok(()) => break,
                Err(error) if error.tier == engine::kind::Tier::Transient => {
                    let now = size_of(&part);
                    fruitless = if now > before { 0 } else { fruitless + 1 };
                    before = now;
                    if fruitless >= FRUITLESS {
                        return Err(error);
                    }
                    std::thread::sleep(Duration::from_millis(500));
                }
                Err(error) => return Err(error),
            }
        }
        fs::rename(&part, &path).map_err(|e| StageError::io(&part, e))?;
    }
    total.done += size_of(&path);
    Ok(path)
}

/// The text of a small answer, such as JSON from the hub.
pub fn get_text(request: &Request) -> Result<String, StageError> {
    let response = call(request, None)?;
    check_status(request, &response)?;
    let mut body = response.into_body();
    body.read_to_string().map_err(|e| broken(request, &e.to_string()))
}

/// One connection: fills `part` up, or fails with what came kept.
fn attempt(ctx: &StageCtx, request: &Request, part: &Path, total: &Total) -> Result<(), StageError> {
    let validator_path = part.with_extension("validator");
    let validator = fs::read_to_string(&validator_path).ok();
    let mut have = size_of(part);
    let resumable = have > 0 && (request.immutable || validator.is_some());
    let range = resumable.then(|| (have, validator));
    let response = call(request, range.as_ref().map(|(from, v)| (*from, v.as_deref())))?;
    let headers = response.headers().clone();
    let length = number(&headers, "content-length");
    let expected = match response.status().as_u16() {
        206 if content_range(&headers).is_some_and(|(start, _)| start == Some(have)) => {
            content_range(&headers).and_then(|(_, size)| size)
        }
        // Everything was here already, or the file shrank: both show in the size.
        416 if content_range(&headers) == Some((None, Some(have))) => return Ok(()),
        206 | 416 => {
            fs::remove_file(part).map_err(|e| StageError::io(part, e))?;
            return Err(broken(request, "the server answered with another range"));
        }
        _ => {
            check_status(request, &response)?;
            have = 0;
            length
        }
    };
    let mut options = OpenOptions::new();
    options.create(true).append(have > 0).write(true).truncate(have == 0);
    let mut file = options.open(part).map_err(|e| StageError::io(part, e))?;
    if have == 0 {
        save_validator(&headers, &validator_path)?;
    }
    let expected = request.size.or(expected);
    let done = copy(ctx, request, response, &mut file, part, have, expected, total)?;
    file.sync_all().map_err(|e| StageError::io(part, e))?;
    match expected {
        Some(size) if done < size => Err(broken(request, &format!("it ended after {done} of {size} bytes"))),
        Some(size) if done > size => {
            fs::remove_file(part).map_err(|e| StageError::io(part, e))?;
            Err(broken(request, &format!("{done} bytes came, {size} were announced")))
        }
        _ => Ok(()),
    }
}

/// Copies the body to the file; returns the file's size.
#[expect(clippy::too_many_arguments, reason = "one call site; a struct would only rename them")]
fn copy(
    ctx: &StageCtx,
    request: &Request,
    response: Response<ureq::Body>,
    file: &mut File,
    part: &Path,
    have: u64,
    expected: Option<u64>,
    total: &Total,
) -> Result<u64, StageError> {
    let mut body = response.into_body().into_reader();
    let mut buffer = vec![0; 1 << 18];
    let mut done = have;
    loop {
        if ctx.stopping() {
            return Err(StageError::stopped());
        }
        let n = body.read(&mut buffer).map_err(|e| broken(request, &e.to_string()))?;
        if n == 0 {
            return Ok(done);
        }
        file.write_all(&buffer[..n]).map_err(|e| StageError::io(part, e))?;
        done += n as u64;
        let all = total.all.or(expected).unwrap_or(0);
        ctx.progress(total.done + done, all.max(total.done + done), "bytes");
    }
}

/// Sends the request and follows redirects. The token goes to the first address's origin only.
fn call(request: &Request, range: Option<(u64, Option<&str>)>) -> Result<Response<ureq::Body>, StageError> {
    let mut url = request.url.clone();
    for _ in 0..=REDIRECTS {
        let mut call = AGENT.get(&url);
        if let Some(token) = request.token.as_deref().filter(|_| origin(&url) == origin(&request.url)) {
            call = call.header("authorization", format!("Bearer {token}"));
        }
        if let Some((from, validator)) = range {
            call = call.header("range", format!("bytes={from}-"));
            if let Some(validator) = validator {
                call = call.header("if-range", validator);
            }
        }
        let response = call.call().map_err(|e| broken(request, &e.to_string()))?;
        let location = response.headers().get("location").and_then(|v| v.to_str().ok());
        match location.filter(|_| response.status().is_redirection()) {
            Some(absolute) if absolute.contains("://") => url = absolute.to_owned(),
            Some(path) if path.starts_with('/') => url = format!("{}{path}", origin(&url)),
            Some(_) => return Err(broken(request, "it redirects to a relative address")),
            None => return Ok(response),
        }
    }
    Err(broken(request, "too many redirects"))
}

/// Scheme, host and port.
fn origin(url: &str) -> &str {
    let end = url.match_indices('/').nth(2).map_or(url.len(), |(at, _)| at);
    &url[..end]
}

fn check_status(request: &Request, response: &Response<ureq::Body>) -> Result<(), StageError> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let message = format!("{} answered {status}", shown(&request.url));
    Err(match status.as_u16() {
        408 | 425 | 429 | 500.. => StageError::transient(message)
            .with_help("the server is busy or down; try again, or set `retries` for this stage"),
        401 | 403 => StageError::input(message)
            .with_help("it needs permission: for the hub accept the terms and set HF_TOKEN"),
        _ => StageError::input(message).with_help("check `source` and `revision`"),
    })
}

fn broken(request: &Request, what: &str) -> StageError {
    StageError::transient(format!("{}: {what}", shown(&request.url)))
        .with_help("what came is kept; running again continues from there")
}

/// Remembers what identifies this version of the file, so that a resumed download cannot mix two
/// versions. Weak tags do not promise equal bytes.
fn save_validator(headers: &HeaderMap, path: &Path) -> Result<(), StageError> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
    let strong = text("etag").filter(|tag| !tag.starts_with("W/"));
    match strong.or_else(|| text("last-modified")) {
        Some(validator) => fs::write(path, validator).map_err(|e| StageError::io(path, e)),
        None if path.exists() => fs::remove_file(path).map_err(|e| StageError::io(path, e)),
        None => Ok(()),
    }
}

/// Start and full size from `Content-Range: bytes START-END/SIZE` or `bytes */SIZE`.
fn content_range(headers: &HeaderMap) -> Option<(Option<u64>, Option<u64>)> {
    let text = headers.get("content-range")?.to_str().ok()?;
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let start = range.split_once('-').and_then(|(start, _)| start.parse().ok());
    Some((start, size.parse().ok()))
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn size_of(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Moves a finished file into the artifact.
pub fn move_file(from: &Path, to: &Path) -> Result<(), StageError> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent).map_err(|e| StageError::io(parent, e))?;
    }
    fs::rename(from, to).map_err(|e| StageError::io(to, e))
}

/// True when a URL holds a user name or password.
pub fn has_credentials(url: &str) -> bool {
    url.splitn(4, '/').nth(2).is_some_and(|host| host.contains('@'))
}

/// A URL fit for messages: without credentials, and without a query, which may hold a signature.
pub fn shown(url: &str) -> String {
    let plain = url.split(['?', '#']).next().unwrap_or(url);
    match plain.split_once("://") {
        Some((scheme, rest)) if has_credentials(plain) => {
            let host = rest.split_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        _ => plain.to_owned(),
    }
}
