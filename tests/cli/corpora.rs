//! Corpora in shards and in a bucket, through the real program: the same commands as for a folder.

use super::*;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SECRET: &str = "wJalrXUtnFEMIsecret";

/// Packs a corpus of `sample-corpus` into tars of four clips, as WebDataset has them, and into a table.
const PACK: &str = r#"
import io, json, os, sys, tarfile
import pyarrow as pa, pyarrow.parquet as pq
corpus, out = sys.argv[1:3]
rows = [line.rstrip("\n").split("|") for line in open(f"{corpus}/metadata.csv", encoding="utf-8")]
clips = [(row[0], open(f"{corpus}/wavs/{row[0]}.wav", "rb").read(), row[-1]) for row in rows]
os.makedirs(f"{out}/tar"); os.makedirs(f"{out}/parquet")
for n in range(0, len(clips), 4):
    with tarfile.open(f"{out}/tar/shard-{n // 4:03}.tar", "w") as tar:
        for key, sound, text in clips[n:n + 4]:
            for ending, data in (("wav", sound), ("json", json.dumps({"text": text, "speaker": "anna", "language": "en"}).encode())):
                info = tarfile.TarInfo(f"{key}.{ending}"); info.size = len(data); tar.addfile(info, io.BytesIO(data))
audio = pa.array([{"bytes": sound, "path": f"{key}.wav"} for key, sound, _ in clips], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
pq.write_table(pa.table({"audio": audio, "text": [text for *_, text in clips], "speaker": ["anna"] * len(clips), "id": [key for key, *_ in clips]}), f"{out}/parquet/train-0.parquet", row_group_size=5)
"#;

const UPLOAD: &str = r#"
import boto3, os, sys
s3 = boto3.client("s3", endpoint_url=sys.argv[1])
s3.create_bucket(Bucket="bucket")
for folder, _, names in os.walk(sys.argv[2]):
    for name in names:
        path = os.path.join(folder, name)
        s3.upload_file(path, "bucket", os.path.relpath(path, sys.argv[2]))
"#;

fn packed() -> Option<Bench> {
    let python = host::test_python("pyarrow")?;
    let bench = Bench::with_corpus();
    let output =
        Command::new(&python).args(["-c", PACK]).args([bench.path("corpus"), bench.path("shards")]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    Some(bench)
}

#[test]
fn shards_are_checked_prepared_and_trained_on_as_a_folder_is() {
    let Some(bench) = packed() else { return };
    for corpus in ["shards/tar", "shards/parquet", "shards/tar/shard-{000..003}.tar"] {
        let report = bench.ok(&["check", corpus, "--json"]);
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!((report["clips"].as_u64(), report["speakers"]["anna"].as_u64()), (Some(16), Some(16)), "{corpus}");
    }
    let prepared = |corpus: &str| {
        let report: serde_json::Value = serde_json::from_str(&bench.ok(&["prepare", corpus, "--json"])).unwrap();
        let count = |name: &str| report["cache"][name].as_u64().unwrap();
        (count("built"), count("reused") + count("encoded"))
    };
    assert_eq!(prepared("shards/tar"), (16, 0));
    assert_eq!(prepared("shards/tar"), (0, 16), "nothing is read again");
    assert_eq!(prepared("shards/parquet").0, 0, "the same sound is known by its bytes");
    bench.ok(&["train", "--config", "config.yaml", "--train-data", "shards/tar", "--checkpoint-dir", "voice"]);
    assert!(bench.path("voice/step-00000008").exists());
    let refused = bench.run(&["check", "shards/tar", "--fix"]);
    assert!(
        !refused.status.success() && stderr(&refused).contains("a corpus in shards has none"),
        "{}",
        stderr(&refused)
    );
}

/// A real S3 server of the `moto` package, for as long as a test runs.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start(python: &OsStr) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Server { process, port };
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(120), "the S3 server does not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Makes the bucket, with the files below a folder in it.
    fn upload(&self, python: &OsStr, folder: &Path) {
        let mut command = Command::new(python);
        let uploaded = self.env(command.args(["-c", UPLOAD, &self.url()]).arg(folder)).output().unwrap();
        assert!(uploaded.status.success(), "{}", stderr(&uploaded));
    }

    fn env<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("AWS_ENDPOINT_URL", self.url())
            .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_DEFAULT_REGION", "us-east-1")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_bucket_is_a_corpus_and_no_credential_is_written() {
    let Some(bench) = packed() else { return };
    let Some(python) = host::test_python("moto.server") else { return };
    let server = Server::start(&python);
    server.upload(&python, &bench.path("shards"));
    let ours = |args: &[&str]| server.env(&mut bench.command(args)).output().unwrap();
    let mut said = String::new();
    for corpus in ["s3://bucket/tar/", "s3://bucket/parquet", "s3://bucket/tar/shard-*.tar"] {
        let output = ours(&["check", corpus, "--json"]);
        let report: serde_json::Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)));
        assert_eq!(report["clips"], 16, "{corpus}");
        said += &stderr(&output);
    }
    let trained =
        ours(&["train", "--config", "config.yaml", "--train-data", "s3://bucket/tar", "--checkpoint-dir", "voice"]);
    assert!(trained.status.success(), "{}", stderr(&trained));
    let absent = ours(&["check", "s3://bucket/nowhere/"]);
    assert!(!absent.status.success() && stderr(&absent).contains("s3://bucket/nowhere"), "{}", stderr(&absent));
    let nobody = ours(&["check", "s3://other-bucket/x.tar"]);
    assert!(stderr(&nobody).contains("s3://other-bucket/x.tar: not found (404"), "{}", stderr(&nobody));
    for output in [&trained, &absent, &nobody] {
        said += &stderr(output);
        said += &String::from_utf8_lossy(&output.stdout);
    }
    assert!(!said.contains(SECRET) && !said.contains("AKIDEXAMPLE"), "{said}");
    assert!(!holds(&bench.path("voice"), SECRET), "a credential in the checkpoint");
}

/// Between the program and a server: of the requests that come by, some are answered with 500, some by half an answer.
struct Unreliable {
    port: u16,
    refused: Arc<AtomicUsize>,
    halved: Arc<AtomicUsize>,
}

impl Unreliable {
    fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, behind) = (listener.local_addr().unwrap().port(), server.port);
        let [refused, halved] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let counts = (refused.clone(), halved.clone());
        std::thread::spawn(move || {
            for (number, client) in listener.incoming().flatten().enumerate() {
                let (refused, halved) = counts.clone();
                std::thread::spawn(move || {
                    let Ok(answer) = pass_on(&client, behind) else { return };
                    let refusal =
                        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                    let some = match number % 10 {
                        3 => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            &refusal[..]
                        }
                        6 => {
                            halved.fetch_add(1, Ordering::Relaxed);
                            &answer[..answer.len() / 2]
                        }
                        _ => &answer,
                    };
                    let _ = (&client).write_all(some);
                });
            }
        });
        Unreliable { port, refused, halved }
    }
}

/// Hands one request to the server and takes its answer.
fn pass_on(client: &TcpStream, port: u16) -> std::io::Result<Vec<u8>> {
    let (mut reader, mut head, mut length) = (BufReader::new(client), String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        if !lower.starts_with("connection:") {
            head += &line;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut server = TcpStream::connect(("127.0.0.1", port))?;
    server.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
    server.write_all(&body)?;
    let mut answer = vec![];
    server.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Two machines build their halves into the bucket of a real server through a network that fails now and then, a third makes
/// the index and trains in bounded room: the same voice as from the same bucket without failures and with room for all.
#[test]
fn features_lie_in_a_bucket_whatever_its_network_does() {
    let Some(bench) = packed() else { return };
    let Some(python) = host::test_python("moto.server") else { return };
    let server = Server::start(&python);
    server.upload(&python, &bench.path("shards"));
    let config = CONFIG.replace("val_split: 0.1", "val_split: 0.1, shard_size: 100KB, shuffle_shards: 1");
    fs::write(bench.path("config.yaml"), config).unwrap();
    let network = Unreliable::before(&server);
    let run = |port: u16, near: &str, args: &[&str]| {
        let mut command = bench.command(args);
        command.args(["--config", "config.yaml", "--cache-dir", "s3://bucket/features", "--local-cache", near]);
        let output =
            server.env(&mut command).env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains(SECRET), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let prepared = |near: &str, more: &[&str]| {
        let args = [&["prepare", "s3://bucket/tar/", "--json"], more].concat();
        let report: serde_json::Value = serde_json::from_str(&run(network.port, near, &args)).unwrap();
        let count = |name: &str| report["cache"][name].as_u64().unwrap();
        (count("built"), count("reused"), count("bytes"))
    };
    let halves = [prepared("near1", &["--shard", "1/2"]), prepared("near2", &["--shard", "2/2"])];
    assert_eq!(halves.map(|(built, ..)| built), [8, 8]);
    assert_eq!(prepared("near1", &["--shard", "2/2"]).0, 0, "done by another machine");
    let (built, reused, bytes) = prepared("near3", &[]);
    assert_eq!((built, reused), (0, 16));
    let most: u64 = 700_000;
    assert!(bytes > 3 * most / 2, "{bytes} bytes of features are few");
    let train = |port: u16, near: &str, voice: &str, size: &str| {
        let args = ["train", "--train-data", "s3://bucket/tar/", "--checkpoint-dir", voice, "--local-cache-size", size];
        run(port, near, &args);
        bench.weights(&format!("{voice}/step-00000008"))
    };
    let troubled = train(network.port, "near3", "troubled", &most.to_string());
    assert!(troubled == train(server.port, "near4", "calm", "1GB"));
    let near = |name: &str| shard_bytes(&bench.path(name));
    assert!(near("near3") <= most && near("near4") > most, "{} and {} bytes", near("near3"), near("near4"));
    let [refused, halved] = [&network.refused, &network.halved].map(|count| count.load(Ordering::Relaxed));
    assert!(refused > 3 && halved > 3, "{refused} requests refused, {halved} answers halved");
    assert!(!holds(&bench.path("troubled"), SECRET) && !holds(&bench.path("near3"), SECRET));
}

/// Bytes of all shards below a folder.
fn shard_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let is_shard = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("shard-"));
    let bytes = |path: PathBuf| match path.is_dir() {
        true => shard_bytes(&path),
        false if is_shard(&path) => fs::metadata(&path).unwrap().len(),
        false => 0,
    };
    entries.map(bytes).sum()
}

/// Whether any file below a folder holds a text.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().flatten().any(|entry| {
        if entry.path().is_dir() {
            return holds(&entry.path(), text);
        }
        let mut bytes = vec![];
        fs::File::open(entry.path()).unwrap().read_to_end(&mut bytes).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}
