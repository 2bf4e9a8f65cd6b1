//! Chromium, driven by `WebDriver` (<https://www.w3.org/TR/webdriver2/>). Debian has it: `chromium` and
//! `chromium-driver`.
//!
//! It opens files only, with a profile of its own and without the network of Chromium itself.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The key of an element in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const FLAGS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// How long a command of the protocol may take, with room for a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A window with one page.
pub(super) struct Browser {
    port: u16,
    session: String,
    _driver: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Opens a file in a window of this size.
    pub(super) async fn open(
        file: &Path,
        fragment: &str,
        scheme: &str,
        (width, height): (u32, u32),
    ) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut driver = command.spawn().context("chromedriver: apt-get install chromium chromium-driver")?;
        let port = port(&mut driver).await?;
        let mut arguments: Vec<String> = FLAGS.map(str::to_owned).into();
        arguments.push(format!("--user-data-dir={}", profile.path().display()));
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let session = ask(port, "/session", &wanted).await?;
        let session = session["sessionId"].as_str().context("no session")?.to_owned();
        let browser = Self { port, session, _driver: driver, _profile: profile };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        for (command, parameters) in
            [("Emulation.setDeviceMetricsOverride", size), ("Emulation.setEmulatedMedia", features)]
        {
            browser.command("/goog/cdp/execute", &json!({"cmd": command, "params": parameters})).await?;
        }
        browser.command("/url", &json!({"url": format!("file://{}{fragment}", file.display())})).await?;
        Ok(browser)
    }

    async fn command(&self, path: &str, body: &Value) -> Result<Value> {
        ask(self.port, &format!("/session/{}{path}", self.session), body).await
    }

    /// The result of a script.
    pub(super) async fn script(&self, script: &str) -> Result<Value> {
        self.command("/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// The text of an element, shown or not.
    pub(super) async fn text(&self, selector: &str) -> Result<String> {
        let script = "return document.querySelector(arguments[0]).textContent";
        let text = self.command("/execute/sync", &json!({"script": script, "args": [selector]})).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    async fn element(&self, selector: &str) -> Result<String> {
        let found = self.command("/element", &json!({"using": "css selector", "value": selector})).await?;
        Ok(found[ELEMENT].as_str().with_context(|| selector.to_owned())?.to_owned())
    }

    pub(super) async fn click(&self, selector: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.command(&format!("/element/{element}/click"), &json!({})).await.map(drop)
    }

    pub(super) async fn keys(&self, selector: &str, keys: &str) -> Result<()> {
        let element = self.element(selector).await?;
        self.command(&format!("/element/{element}/value"), &json!({"text": keys})).await.map(drop)
    }

    /// Types into the search, as a person does.
    pub(super) async fn search(&self, query: &str) -> Result<()> {
        let element = self.element("#query").await?;
        self.command(&format!("/element/{element}/clear"), &json!({})).await?;
        self.keys("#query", &format!("{query}\u{e007}")).await
    }

    /// Clicks the middle of the block with this number in the first row of a field.
    pub(super) async fn click_block(&self, field: &str, number: u32) -> Result<()> {
        let script =
            "const field = document.querySelector(arguments[0]); field.scrollIntoView({block: 'center'});
            const area = field.querySelector('svg').getBoundingClientRect(), scale = area.width / 3672;
            return [Math.round(area.left + (600 + (arguments[1] + .5) * 96) * scale),
                    Math.round(area.top + 48 * scale)]";
        let at = self.command("/execute/sync", &json!({"script": script, "args": [field, number]})).await?;
        let actions = json!([
            {"type": "pointerMove", "x": at[0], "y": at[1]}, {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]);
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": actions});
        self.command("/actions", &json!({"actions": [mouse]})).await.map(drop)
    }

    pub(super) async fn screenshot(&self) -> Result<Vec<u8>> {
        let path = format!("/session/{}/screenshot", self.session);
        let encoded = exchange(self.port, "GET", &path, "").await?;
        decoded(encoded.as_str().context("no picture")?)
    }

    /// Fails if the page has logged an error, such as a request that its policy forbids.
    pub(super) async fn expect_no_errors(&self) -> Result<()> {
        let log = self.command("/se/log", &json!({"type": "browser"})).await?;
        ensure!(log.as_array().is_some_and(Vec::is_empty), "{log}");
        Ok(())
    }
}

/// The port that the driver has chosen, as it says.
async fn port(driver: &mut Child) -> Result<u16> {
    let stdout = driver.stdout.take().context("no output")?;
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return Ok(port.trim_end_matches('.').parse()?);
        }
    }
    bail!("chromedriver has ended")
}

async fn ask(port: u16, path: &str, body: &Value) -> Result<Value> {
    exchange(port, "POST", path, &body.to_string()).await
}

/// One request of the protocol, and the value of its answer.
async fn exchange(port: u16, method: &str, path: &str, body: &str) -> Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    tokio::time::timeout(TIME_LIMIT, answer(&mut BufReader::new(stream))).await.context(path.to_owned())?
}

/// The value of an answer. The driver keeps its connections open, so the header gives its length.
async fn answer(stream: &mut BufReader<TcpStream>) -> Result<Value> {
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        ensure!(stream.read_line(&mut head).await? > 0, "closed after {head}");
        if let Some((name, value)) = head[start..].split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let mut answer: Value = serde_json::from_slice(&body)?;
    ensure!(head.contains(" 200 "), "{answer}");
    Ok(answer["value"].take())
}

/// The bytes of a text in base64 (RFC 4648 section 4).
fn decoded(text: &str) -> Result<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut n_bits) = (0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let value = ALPHABET.iter().position(|known| *known == letter).context("no base64")?;
        bits = (bits << 6) | u32::try_from(value)?;
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push(u8::try_from((bits >> n_bits) & 0xff)?);
        }
    }
    Ok(bytes)
}
