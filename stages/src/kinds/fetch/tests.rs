use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::kind::{Access, Pin, Stage, StageCtx, StageError, Tier};
use tempfile::TempDir;

use super::test_server::{Answer, Seen, Server};
use super::*;

/// Folders of one stage that outlive attempts.
struct Place {
    out: TempDir,
    state: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { out: tempfile::tempdir().unwrap(), state: tempfile::tempdir().unwrap() }
    }
    fn ctx(&self) -> StageCtx {
        StageCtx::detached(self.out.path(), self.state.path(), BTreeMap::new())
    }
    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.out.path().join(name)).unwrap()
    }
    fn is_empty(&self) -> bool {
        std::fs::read_dir(self.out.path()).unwrap().next().is_none()
    }
}

fn fetch_of(source: &str) -> Fetch {
    serde_json::from_value(serde_json::json!({ "source": source })).unwrap()
}

fn fetch(stage: &Fetch, place: &Place) -> Result<(), StageError> {
    stage.run(&place.ctx())
}

fn body() -> Vec<u8> {
    (0..300_000u32).map(|i| (i % 251) as u8).collect()
}

/// Serves a body whole or from the asked byte on, with an entity tag.
fn ranged(request: &Seen, body: &[u8]) -> Answer {
    let from: Option<usize> =
        request.header("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    match from {
        Some(from) if request.header("if-range").is_none_or(|tag| tag == "\"v1\"") => {
            Answer::status("206 Partial Content", &body[from..])
                .header("content-range", format!("bytes {from}-{}/{}", body.len() - 1, body.len()))
        }
        _ => Answer::ok(body).header("etag", "\"v1\""),
    }
}

#[test]
fn a_whole_file_arrives_and_its_digest_is_checked() {
    let server = Server::start(|_| Answer::ok(&body()));
    let place = Place::new();
    let mut stage = fetch_of(&format!("{}/data/file.bin?x=1", server.url));
    stage.digest = Some(blake3::hash(&body()).to_hex().to_string());
    assert_eq!(stage.outputs(), ["file.bin"]);
    fetch(&stage, &place).unwrap();
    assert_eq!(place.read("file.bin"), body());

    stage.digest = Some("0".repeat(64));
    let error = fetch(&stage, &Place::new()).unwrap_err();
    assert_eq!(error.tier, Tier::Input);
    assert!(error.message.contains("the manifest says 000"), "{error}");
}

#[test]
fn the_lock_file_wins_over_new_content() {
    let server = Server::start(|_| Answer::ok(b"new"));
    let stage = fetch_of(&format!("{}/file", server.url));
    let pin = |content: &[u8]| Pin { digest: blake3::hash(content).to_hex().to_string(), revision: None };
    for (content, good) in [(b"new", true), (b"old", false)] {
        let place = Place::new();
        let pins = BTreeMap::from([(stage.source.clone(), pin(content))]);
        let result = stage.run(&place.ctx().with_pins(pins));
        assert_eq!(result.is_ok(), good);
        if let Err(error) = result {
            assert!(error.message.contains("the lock file says"), "{error}");
            assert!(error.help.unwrap().contains("remove this source from the lock file"));
        }
    }
}

#[test]
fn a_cut_download_goes_on_where_it_stopped() {
    let calls = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let answer = ranged(request, &body());
        match calls.fetch_add(1, Ordering::SeqCst) {
            0 => answer.cut(100_000),
            1 => answer.cut(50_000),
            _ => answer,
        }
    });
    let place = Place::new();
    fetch(&fetch_of(&format!("{}/f", server.url)), &place).unwrap();
    assert_eq!(place.read("f"), body());
    let ranges: Vec<Option<String>> =
        server.seen().iter().map(|s| s.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges, [None, Some("bytes=100000-".into()), Some("bytes=150000-".into())]);
    assert_eq!(server.seen()[1].header("if-range"), Some("\"v1\""));
}

#[test]
fn what_an_earlier_process_left_is_used_unless_the_file_changed() {
    let server = Server::start(|request| ranged(request, &body()));
    let stage = fetch_of(&format!("{}/f", server.url));
    for (validator, expected_body) in [("\"v1\"", true), ("\"v0\"", false)] {
        let place = Place::new();
        // Marked bytes show whether the old part was used.
        std::fs::write(place.state.path().join("f.part"), [7u8; 1000]).unwrap();
        std::fs::write(place.state.path().join("f.validator"), validator).unwrap();
        fetch(&stage, &place).unwrap();
        let got = place.read("f");
        assert_eq!(got.len(), body().len());
        assert_eq!(got[..1000] == [7u8; 1000], expected_body);
        assert_eq!(got[1000..], body()[1000..]);
    }
}

#[test]
fn a_truncated_body_is_transient_and_nothing_is_left_in_out() {
    let server = Server::start(|_| Answer::ok(&body()).cut(10));
    let place = Place::new();
    let error = fetch(&fetch_of(&format!("{}/f", server.url)), &place).unwrap_err();
    assert_eq!(error.tier, Tier::Transient, "{error}");
    assert!(error.message.contains("/f: "), "{error}");
    assert!(place.is_empty());
}

#[test]
fn statuses_have_tiers() {
    for (status, tier) in [
        ("404 Not Found", Tier::Input),
        ("403 Forbidden", Tier::Input),
        ("503 Service Unavailable", Tier::Transient),
        ("429 Too Many Requests", Tier::Transient),
    ] {
        let server = Server::start(move |_| Answer::status(status, b"secret page"));
        let place = Place::new();
        let error = fetch(&fetch_of(&format!("{}/f?signature=s3cr3t", server.url)), &place).unwrap_err();
        assert_eq!(error.tier, tier, "{status}");
        assert!(error.message.contains(&status[..3]), "{error}");
        assert!(!error.message.contains("s3cr3t"), "{error}");
        assert!(error.help.is_some());
        assert!(place.is_empty());
    }
}

#[test]
fn redirects_are_followed() {
    let server = Server::start(|request| match request.path.as_str() {
        "/a" => Answer::status("302 Found", b"").header("location", "/b"),
        _ => Answer::ok(b"behind"),
    });
    let place = Place::new();
    fetch(&fetch_of(&format!("{}/a", server.url)), &place).unwrap();
    assert_eq!(place.read("a"), b"behind");
}

#[test]
fn nobody_there_is_transient() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = fetch(&fetch_of(&format!("http://{address}/f")), &Place::new()).unwrap_err();
    assert_eq!(error.tier, Tier::Transient);
}

const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one repository; files lie on another server, as on the real hub.
fn hub_server(files: &Server) -> Server {
    let elsewhere = files.url.clone();
    Server::start(move |request| {
        let path = request.path.as_str();
        if path.starts_with("/api/models/some/model/revision/main") {
            let answer = serde_json::json!({"sha": SHA, "siblings": [
                {"rfilename": "config.json", "size": 2},
                {"rfilename": "sub/model.bin", "size": 300_000},
                {"rfilename": "README.md", "size": 5},
            ]});
            return Answer::ok(answer.to_string().as_bytes());
        }
        match path.strip_prefix(&format!("/some/model/resolve/{SHA}/")) {
            Some("config.json") => Answer::ok(b"{}"),
            Some(file) => {
                Answer::status("302 Found", b"").header("location", format!("{elsewhere}/cdn/{file}"))
            }
            None => Answer::status("404 Not Found", b""),
        }
    })
}

#[test]
fn a_repository_arrives_at_its_commit_and_the_token_stays_with_the_hub() {
    let files = Server::start(|_| Answer::ok(&body()));
    let server = hub_server(&files);
    let hub = Hub::new(&format!("{}/", server.url), Some("hf_s3cr3t\n".into()));
    let mut stage = fetch_of("hf:some/model");
    stage.files = vec!["*.json".into(), "*.bin".into()];
    let place = Place::new();
    let (path, commit) = stage.bring(&place.ctx(), &hub).unwrap();
    assert_eq!((path.as_path(), commit.as_deref()), (place.out.path(), Some(SHA)));
    assert_eq!(place.read("config.json"), b"{}");
    assert_eq!(place.read("sub/model.bin"), body());
    assert!(!place.out.path().join("README.md").exists());
    assert_eq!(server.seen().len(), 3);
    for request in server.seen() {
        assert_eq!(request.header("authorization"), Some("Bearer hf_s3cr3t"));
    }
    assert_eq!(files.seen().len(), 1);
    assert_eq!(files.seen()[0].header("authorization"), None);

    let plain = fetch_of(&format!("{}/f", files.url));
    fetch(&plain, &Place::new()).unwrap();
    assert_eq!(files.seen()[1].header("authorization"), None);
}

#[test]
fn hub_errors_name_the_remedy_and_hide_the_token() {
    let files = Server::start(|_| Answer::ok(b"short"));
    let server = hub_server(&files);
    let hub = Hub::new(&server.url, Some("hf_s3cr3t".into()));
    let mut stage = fetch_of("hf:some/model");
    stage.files = vec!["*.gguf".into()];
    let error = stage.bring(&Place::new().ctx(), &hub).unwrap_err();
    assert!(error.help.unwrap().contains("config.json, sub/model.bin"));

    stage.files = vec!["*.bin".into()];
    let place = Place::new();
    let error = stage.bring(&place.ctx(), &hub).unwrap_err();
    assert_eq!(error.tier, Tier::Transient);
    assert!(place.is_empty());

    let error = fetch_of("hf:gone/model").bring(&place.ctx(), &hub).unwrap_err();
    assert!(error.message.contains("404"), "{error}");
    assert!(!format!("{error:?}").contains("s3cr3t"));
}

#[test]
fn a_pinned_commit_is_asked_for() {
    let server = Server::start(|_| Answer::status("404 Not Found", b""));
    let hub = Hub::new(&server.url, None);
    let stage = fetch_of("hf:datasets/some/data");
    let pin = Pin { digest: "0".repeat(64), revision: Some(SHA.into()) };
    let place = Place::new();
    let ctx = place.ctx().with_pins(BTreeMap::from([(stage.pin_name(), pin)]));
    stage.bring(&ctx, &hub).unwrap_err();
    let expected = format!("/api/datasets/some/data/revision/{SHA}?blobs=true");
    assert_eq!(server.seen()[0].path, expected);
}

fn access(offline: bool, mirrors: &[(&str, &Path)]) -> Access {
    let mirrors = mirrors.iter().map(|(prefix, folder)| ((*prefix).into(), (*folder).into()));
    Access { offline, mirrors: mirrors.collect() }
}

#[test]
fn mirrors_come_first_and_the_longest_prefix_wins() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("web/data/f.txt", "general");
    write("special/f.txt", "special");
    write("models/some/model/config.json", "{}");
    write("models/some/model/.git/HEAD", "x");
    let (web, special, models) =
        (folder.path().join("web"), folder.path().join("special"), folder.path().join("models"));
    let mirrors = access(
        true,
        &[("https://example.org/", &web), ("https://example.org/data/", &special), ("hf:", &models)],
    );
    let run = |source: &str| {
        let place = Place::new();
        let result = fetch_of(source).run(&place.ctx().with_access(mirrors.clone()));
        (result, place)
    };
    let (result, place) = run("https://example.org/data/f.txt");
    result.unwrap();
    assert_eq!(place.read("f.txt"), b"special");
    let (result, place) = run("hf:some/model");
    result.unwrap();
    assert_eq!(place.read("config.json"), b"{}");
    assert!(!place.out.path().join(".git").exists());
    let (result, place) = run("https://example.org/data/other.txt");
    let error = result.unwrap_err();
    assert_eq!(error.tier, Tier::Environment);
    assert!(error.message.contains("offline"), "{error}");
    assert!(place.is_empty());
    let (result, _) = run("https://example.org/../../etc/hostname");
    assert!(result.is_err());
}

#[test]
fn local_files_and_folders_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "a").unwrap();
    let source = format!("file://{}", folder.path().display());
    let place = Place::new();
    let mut stage = fetch_of(&format!("{source}/a.txt"));
    stage.rename = Some("b.txt".into());
    fetch(&stage, &place).unwrap();
    assert_eq!(place.read("b.txt"), b"a");
    let mut stage = fetch_of(&source);
    stage.rename = Some("data".into());
    fetch(&stage, &place).unwrap();
    assert_eq!(place.read("data/a.txt"), b"a");
    let error = fetch(&fetch_of(&format!("{source}/gone.txt")), &place).unwrap_err();
    assert_eq!(error.tier, Tier::Input);
    assert!(error.message.contains("gone.txt does not exist"), "{error}");
}

#[test]
fn check_finds_every_mistake() {
    let problems = |value: serde_json::Value| -> Vec<String> {
        let stage: Fetch = serde_json::from_value(value).unwrap();
        Stage::check(&stage).into_iter().map(|p| p.param).collect()
    };
    use serde_json::json;
    let none: [&str; 0] = [];
    assert_eq!(problems(json!({"source": "hf:datasets/openai/gsm8k", "revision": "main"})), none);
    assert_eq!(problems(json!({"source": "https://example.org/a.json"})), none);
    assert_eq!(problems(json!({"source": "ftp://x/y"})), ["source"]);
    assert_eq!(problems(json!({"source": "file:relative"})), ["source"]);
    assert_eq!(problems(json!({"source": "hf:model"})), ["source"]);
    assert_eq!(problems(json!({"source": "https://example.org/"})), ["source"]);
    assert_eq!(problems(json!({"source": "https://me:pw@example.org/a"})), ["source"]);
    assert_eq!(
        problems(
            json!({"source": "https://x.org/a", "revision": "r", "files": ["["], "rename": "../a", "digest": "12"})
        ),
        ["revision", "files", "rename", "files", "digest"]
    );
}
