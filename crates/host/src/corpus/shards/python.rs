//! Files that `tarfile`, `pyarrow` and `lhotse` wrote themselves.

use crate::config::CorpusFormat;
use crate::corpus::{AudioFeed, ReadOptions, read};
use std::path::Path;
use std::process::Command;

/// Two clips in every form. Sound is a WAV file of four samples.
const SCRIPT: &str = r#"
import io, json, os, struct, sys, tarfile
out = sys.argv[1]
def wav(n):
    data = struct.pack("<4h", *[n] * 4)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16) + b"data" + struct.pack("<I", len(data)) + data
def member(tar, name, data):
    info = tarfile.TarInfo(name); info.size = len(data); tar.addfile(info, io.BytesIO(data))
for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
    for mode, ending in (("w", "tar"), ("w:gz", "tar.gz")):
        os.makedirs(f"{out}/tar-{kind}-{ending}")
        with tarfile.open(f"{out}/tar-{kind}-{ending}/x.{ending}", mode, format=kind) as tar:
            folder = tarfile.TarInfo("folder"); folder.type = tarfile.DIRTYPE; tar.addfile(folder)
            for n in range(2):
                # Long names and others than ASCII take extended headers.
                key = f"folder/{'long' * 20}-{n}" if kind == tarfile.USTAR_FORMAT else f"folder/{'länger' * 40}-{n}"
                member(tar, key + ".wav", wav(n)); member(tar, key + ".json", json.dumps({"text": f"text {n}", "speaker": "anna", "language": "de"}).encode())
import pyarrow as pa, pyarrow.parquet as pq
audio = pa.array([{"bytes": wav(n), "path": f"{n}.wav"} for n in range(2)], pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
table = pa.table({"audio": audio, "text": ["text 0", "text 1"], "speaker_id": ["anna"] * 2, "language": pa.array(["de"] * 2).dictionary_encode()})
forms = {"snappy": {}, "zstd": {"compression": "zstd"}, "plain": {"compression": "none", "use_dictionary": False}, "v2": {"data_page_version": "2.0", "version": "2.6"}, "groups": {"row_group_size": 1}}
for name, options in forms.items():
    os.makedirs(f"{out}/parquet-{name}"); pq.write_table(table, f"{out}/parquet-{name}/train-00000-of-00001.parquet", **options)
large = table.set_column(1, "transcription", table["text"].cast(pa.large_string())).set_column(0, "audio", pa.array([wav(n) for n in range(2)], pa.large_binary()))
os.makedirs(f"{out}/parquet-bytes"); pq.write_table(large, f"{out}/parquet-bytes/x.parquet")
for n in range(2): open(f"{out}/{n}.wav", "wb").write(wav(n))
paths = table.set_column(0, "audio", pa.array([f"{out}/{n}.wav" for n in range(2)]))
os.makedirs(f"{out}/parquet-paths"); pq.write_table(paths, f"{out}/parquet-paths/x.parquet")
"#;

#[test]
fn shards_that_python_wrote() {
    let Some(python) = crate::test_python("pyarrow") else { return };
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(&python).args(["-c", SCRIPT]).arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut folders: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    folders.retain(|path| path.is_dir());
    folders.sort();
    assert!(folders.len() == 13, "{folders:?}");
    folders.iter().for_each(|folder| is_right(folder));
}

/// `tests/data/shar` was written by `SharWriter(out, fields={"recording": "flac"}, shard_size=2)` of lhotse 1.33.0, which
/// would take torch to be run here.
#[test]
fn shar_that_lhotse_wrote() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/shar");
    let corpus = read(&folder, &ReadOptions::default()).unwrap();
    assert_eq!((corpus.format, corpus.problems.len()), (CorpusFormat::Shar, 0), "{:?}", corpus.problems);
    let ids: Vec<_> = corpus.utterances.iter().map(|row| (row.id, row.text)).collect();
    assert_eq!(ids, [("cut-0", "text 0"), ("cut-1", "text 1"), ("cut-2", "text 2")]);
    assert!(corpus.utterances.iter().all(|row| row.speaker == "anna" && row.language == Some("de")));
    let feed = AudioFeed::new(corpus.utterances.iter().enumerate().map(|(index, row)| (index, row.audio)));
    for (index, bytes) in [233, 269].into_iter().enumerate() {
        let sound = feed.take(index).unwrap();
        assert!(sound.starts_with(b"fLaC") && sound.len() == bytes, "{index}: {}", sound.len());
    }
}

fn is_right(folder: &Path) {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let corpus = read(folder, &ReadOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let format = if name.starts_with("tar") { CorpusFormat::Webdataset } else { CorpusFormat::Parquet };
    assert_eq!(
        (corpus.format, corpus.utterances.len(), corpus.problems.len()),
        (format, 2, 0),
        "{name}: {:?}",
        corpus.problems
    );
    let feed = AudioFeed::new(corpus.utterances.iter().enumerate().map(|(index, row)| (index, row.audio)));
    for (index, row) in corpus.utterances.iter().enumerate() {
        assert_eq!((row.text, row.speaker, row.language), (&*format!("text {index}"), "anna", Some("de")), "{name}");
        let sound = if row.audio.file().is_some() { row.audio.read().unwrap() } else { feed.take(index).unwrap() };
        let sample = i16::try_from(index).unwrap().to_le_bytes();
        assert!(sound.starts_with(b"RIFF") && sound[44..].starts_with(&sample.repeat(4)), "{name}: {sound:?}");
    }
}
