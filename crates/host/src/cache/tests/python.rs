//! The files are plain Arrow: `pyarrow` opens them and finds what was put in.

use super::*;
use std::process::Command;

const SCRIPT: &str = r#"
import json, struct, sys, pyarrow as pa
table, shard = (pa.ipc.open_file(pa.memory_map(path)) for path in sys.argv[1:3])
rows = {row["source"]: row for row in shard.read_all().to_pylist()}
clips = []
for clip in table.read_all().to_pylist():
    row = rows[clip["source"]]
    assert (row["samples"], row["checksum"]) == (clip["samples"], clip["checksum"])
    values = row["pcm"] if "pcm" in row else [float(value) for frame in row["mel"] for value in frame]
    with open(sys.argv[2], "rb") as file:
        file.seek(clip["offset"])
        kind = "h" if "pcm" in row else "e"
        assert list(struct.unpack(f"<{len(values)}{kind}", file.read(2 * len(values)))) == values
    clips.append({key: clip[key] for key in ("id", "speaker", "language", "tokens")} | {"sound": values})
print(json.dumps({"settings": json.loads(shard.schema.metadata[b"settings"]), "clips": clips}))
"#;

#[test]
fn pyarrow_reads_what_was_written() {
    let Some(python) = crate::test_python("pyarrow") else { return };
    for content in [CacheContent::Pcm, CacheContent::Mel] {
        let mut case = Case::new(3);
        case.config.data.cache_content = content;
        let (cache, _) = case.run().unwrap();
        let output =
            Command::new(&python).args(["-c", SCRIPT]).args([&case.tables()[0], &case.shards()[0]]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(seen["settings"]["rate_hz"], RATE_HZ);
        for index in 0..3 {
            let (clip, row) = (cache.clip(index).unwrap(), &seen["clips"][index]);
            assert_eq!((&row["id"], &row["speaker"]), (&clip.id.into(), &clip.speaker.into()));
            assert_eq!((&row["language"], &row["tokens"]), (&clip.language.into(), &clip.tokens.into()));
            let values: Vec<f64> = match clip.sound.as_audio() {
                ClipAudio::Pcm(samples) => samples.iter().map(|&sample| f64::from(sample)).collect(),
                ClipAudio::Mel(frames) => frames.iter().map(|&value| value.to_f64()).collect(),
            };
            let theirs = row["sound"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
            assert!(theirs.eq(values.iter().copied()), "clip {index}, {content:?}");
        }
    }
}
