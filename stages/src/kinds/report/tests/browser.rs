//! A headless Chromium, driven through its debugging pipe: no network, no driver program, no crate.
//!
//! The protocol is JSON messages that end in a zero byte
//! (<https://chromedevtools.github.io/devtools-protocol/>).

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

/// After this long the browser is killed, and with it whatever waits for it.
const PATIENCE: Duration = Duration::from_secs(240);

/// A browser with one page.
pub struct Browser {
    to: File,
    from: BufReader<File>,
    session: Option<String>,
    number: u64,
    /// Errors on the console, exceptions, and requests that leave the page.
    pub problems: Vec<String>,
    _folder: tempfile::TempDir,
    _watchdog: Sender<()>,
}

/// The browser's program, if there is one. `CHROMIUM` names it, else the usual names are tried.
/// Continuous integration (`CI` is set) must have one.
pub fn program() -> Option<String> {
    let named = std::env::var("CHROMIUM").ok();
    let usual = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let works = |name: &String| {
        let output = Command::new(name).arg("--version").stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    let found = named.into_iter().chain(usual).find(works);
    if found.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI is set and there is no Chromium; install it, or set CHROMIUM"
        );
        eprintln!("SKIPPED: there is no Chromium (apt-get install chromium, or set CHROMIUM)");
    }
    found
}

impl Browser {
    /// Starts it with an empty page.
    pub fn start(program: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pipe = |name: &str| folder.path().join(name);
        let made = Command::new("mkfifo").args([pipe("to"), pipe("from")]).status().unwrap();
        assert!(made.success());
        let mut command = Command::new("sh");
        // The browser reads commands from descriptor 3 and writes to 4.
        command.args(["-c", "exec \"$0\" \"$@\" 3<\"$TO\" 4>\"$FROM\"", program]);
        command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
        command.args(["--no-first-run", "--disable-extensions", "--disable-background-networking"]);
        command.args(["--hide-scrollbars", "--remote-debugging-pipe", "about:blank"]);
        command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
        command.env("TO", pipe("to")).env("FROM", pipe("from"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let watchdog = watch(command.spawn().unwrap());
        let to = OpenOptions::new().write(true).open(pipe("to")).unwrap();
        let from = BufReader::new(File::open(pipe("from")).unwrap());
        let mut browser = Self {
            to,
            from,
            session: None,
            number: 0,
            problems: Vec::new(),
            _folder: folder,
            _watchdog: watchdog,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Sends a command and waits for its answer; events on the way are looked at.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let message = self.read();
            if message["id"] == json!(self.number) {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&bytes).unwrap()
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let problem = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => matches!(params["type"].as_str(), Some("error" | "warning")),
            Some("Log.entryAdded") => matches!(params["entry"]["level"].as_str(), Some("error" | "warning")),
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                !["file:", "data:", "blob:", "about:"].iter().any(|own| url.starts_with(own))
            }
            _ => false,
        };
        if problem {
            self.problems.push(params.to_string());
        }
    }

    /// Sets the size of the window and the colour scheme.
    pub fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", size);
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call("Emulation.setEmulatedMedia", json!({"features": [feature]}));
    }

    /// Opens a file and waits until its script is done; returns the milliseconds that took.
    pub fn open(&mut self, page: &Path) -> f64 {
        self.call("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        let ready = "new Promise((done) => { const look = () => document.documentElement?.dataset.ready \
                     ? done(performance.now()) : setTimeout(look, 5); look(); })";
        self.evaluate(ready).as_f64().unwrap()
    }

    /// The value of an expression in the page; a promise is waited for.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Saves what the window shows (or the whole page) as PNG.
    pub fn screenshot(&mut self, to: &Path, whole: bool) {
        use base64::Engine;
        let params = json!({"format": "png", "captureBeyondViewport": whole});
        let result = self.call("Page.captureScreenshot", params);
        let bytes = base64::engine::general_purpose::STANDARD.decode(result["data"].as_str().unwrap());
        std::fs::write(to, bytes.unwrap()).unwrap();
    }
}

/// Kills and reaps the browser once the test is done with it, or has waited too long.
fn watch(mut child: Child) -> Sender<()> {
    let (alive, gone) = channel::<()>();
    std::thread::spawn(move || {
        let _ = gone.recv_timeout(PATIENCE);
        let _ = child.kill();
        let _ = child.wait();
    });
    alive
}
