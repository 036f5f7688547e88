//! Corpora in shards and in a bucket, through the real program: the same commands as for a folder.

use super::*;
use std::ffi::OsStr;
use std::io::Read;
use std::net::TcpListener;
use std::process::Child;

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
    let uploaded = server
        .env(Command::new(&python).args(["-c", UPLOAD, &server.url()]).arg(bench.path("shards")))
        .output()
        .unwrap();
    assert!(uploaded.status.success(), "{}", stderr(&uploaded));
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
