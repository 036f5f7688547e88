//! Shards as their users have them, and as nobody should: read right, in bounded memory, and never a panic.

use super::find::{Found, Unit};
use super::*;
use crate::config::CorpusFormat;
use crate::corpus::tests::{Spoil, folder, spoil, spoilt};
use crate::corpus::{AudioFeed, Corpus, Error, ReadOptions};
use crate::error::Explained;
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fs;
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = ::tar::Builder::new(vec![]);
    for (name, bytes) in files {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn read(path: &Path) -> Result<Corpus, Error> {
    crate::corpus::read(path, &ReadOptions::default())
}

/// `id, sound, text, speaker, language` of each clip, the sound as the feed reads it.
fn told(corpus: &Corpus) -> Vec<[String; 5]> {
    let sources = corpus.utterances.iter().enumerate().map(|(index, row)| (index, row.audio));
    let feed = AudioFeed::new(sources);
    let tell = |(index, row): (usize, crate::corpus::UtteranceRef)| {
        let sound = feed.take(index).unwrap_or_else(|unread| panic!("{}: {}", row.id, unread.reason));
        assert_eq!(row.audio.read().unwrap(), sound, "by itself it is the same");
        let sound = String::from_utf8_lossy(&sound);
        [row.id, &sound, row.text, row.speaker, row.language.unwrap_or_default()].map(str::to_owned)
    };
    corpus.utterances.iter().enumerate().map(tell).collect()
}

fn problems(corpus: &Corpus) -> Vec<String> {
    let file = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    corpus.problems.iter().map(|row| format!("{}:{}: {}", file(&row.file), row.line, row.what)).collect()
}

fn explained(error: &Error) -> String {
    Explained::of(error).to_string()
}

const CLIPS: &[(&str, &[u8])] = &[
    ("./a.flac", b"sound of a"),
    ("./a.json", b"{\"text\": \"one\", \"speaker\": 7, \"language\": \"EN_us\", \"dnsmos\": 3.3}"),
    ("b.txt", "\u{feff}two  \r\n lines".as_bytes()),
    ("b.mp3", b"sound of b"),
    ("deep/er/c.d.wav", b"sound of c"),
    ("deep/er/c.d.original.txt", b"3"),
    ("deep/er/c.d.normalized.txt", b"three"),
    ("d.opus", b"sound of d"),
    ("d.lab", b"four"),
    ("cover.jpg", b"a picture"),
];

fn clips(name: &str) -> Vec<[String; 5]> {
    let row = |id: &str, sound: &str, text: &str, speaker: &str, language: &str| {
        [id, sound, text, speaker, language].map(String::from)
    };
    vec![
        row("a", "sound of a", "one", "7", "en-us"),
        row("b", "sound of b", "two lines", name, ""),
        row("deep/er/c.d", "sound of c", "three", name, ""),
        row("d", "sound of d", "four", name, ""),
    ]
}

#[test]
fn webdataset_in_a_folder_plain_and_packed() {
    for (file, bytes) in
        [("s-000.tar", tar_of(CLIPS)), ("s-000.tar.gz", gz(&tar_of(CLIPS))), ("s.tgz", gz(&tar_of(CLIPS)))]
    {
        let dir = folder(&[(file, &bytes)]);
        let name = dir.path().file_name().unwrap().to_str().unwrap();
        for path in [dir.path().to_owned(), dir.path().join(file)] {
            let corpus = read(&path).unwrap();
            assert_eq!((corpus.format, problems(&corpus)), (CorpusFormat::Webdataset, vec![]));
            assert_eq!(told(&corpus), clips(name), "{file}");
            assert!(!corpus.has_lists() && corpus.has_shards());
        }
    }
}

#[test]
fn shards_that_number_their_clips_alike_and_names_that_tell_parts() {
    let one = |text: &str| tar_of(&[("0.wav", text.as_bytes()), ("0.txt", text.as_bytes())]);
    let dir = folder(&[("x-{1}.tar", &one("first")), ("x-2.tar", &one("second")), ("note.md", b"")]);
    let ids = |path: &Path| {
        read(path).unwrap().utterances.iter().map(|row| (row.id.to_owned(), row.text.to_owned())).collect::<Vec<_>>()
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(ids(dir.path()), [pair("0", "second"), pair("x-{1}/0", "first")]);
    let parts = folder(&[
        ("data/train-0.tar", &one("a")),
        ("data/train-1.tar", &one("b")),
        ("data/validation-0.tar", &one("c")),
        ("data/test-0.tar", &one("d")),
    ]);
    let corpus = read(parts.path()).unwrap();
    assert_eq!((corpus.utterances.len(), corpus.validation_from), (3, Some(2)));
    let pattern = |text: &str| read(&parts.path().join(text)).map(|corpus| corpus.utterances.len());
    assert_eq!((pattern("data/train-{0..1}.tar").unwrap(), pattern("data/t*-?.tar").unwrap()), (2, 3));
    assert_eq!(pattern("data/{train,test}-[0].tar").unwrap(), 2);
    let missing = pattern("data/train-{0..2}.tar").unwrap_err();
    assert!(explained(&missing).contains("train-2.tar: no such corpus"), "{missing}");
    assert!(explained(&pattern("*.tar").unwrap_err()).contains("nothing has such a name"));
}

#[test]
fn what_is_wrong_with_a_tar_is_told_and_the_rest_is_kept() {
    let whole = tar_of(&[
        ("a.wav", b"sound of a"),
        ("a.txt", b"one"),
        ("alone.wav", b"sound"),
        ("mute.json", b"{\"text\": \"x\"}"),
        ("bad.wav", b"sound"),
        ("bad.json", b"[1]"),
        ("empty.wav", b"sound"),
        ("empty.json", b"{\"id\": 3}"),
        ("lang.wav", b"sound"),
        ("lang.json", b"{\"text\": \"x\", \"language\": \"klingon\"}"),
        ("utf.wav", b"sound"),
        ("utf.txt", b"\xff\xfe"),
        ("last.wav", &[7; 3_000]),
        ("last.txt", b"last"),
    ]);
    // A path that climbs out, which the tar crate refuses to write.
    let mut climbing = tar_of(&[("aaaaa.wav", b"sound"), ("aaaaa.txt", b"x")]);
    for header in [0, 1024] {
        climbing[header..header + 9].copy_from_slice(b"../../a.w");
        let sum: u32 =
            (0..512).map(|at| if (148..156).contains(&at) { 32 } else { u32::from(climbing[header + at]) }).sum();
        climbing[header + 148..header + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    let truncated = &whole[..whole.len() - 1024 - 1024 - 2_000];
    let dir = folder(&[
        ("1.tar", &whole),
        ("2.tar", &climbing),
        ("3.tar", truncated),
        ("4.tar", b"no tar at all"),
        ("5.tar", &[1; 600]),
    ]);
    let corpus = read(dir.path()).unwrap();
    let ids: Vec<_> = corpus.utterances.iter().map(|row| row.id).collect();
    assert_eq!(ids, ["a", "last", "3/a"], "{:#?}", problems(&corpus));
    let found = problems(&corpus);
    for (place, what) in [
        ("1.tar:2: ", "`alone`: a recording without a text"),
        ("1.tar:3: ", "`mute`: a text without a recording"),
        ("1.tar:4: ", "bad.json: not a JSON object"),
        ("1.tar:5: ", "`empty`: no `text` in its JSON"),
        ("1.tar:6: ", "`klingon` is no language code"),
        ("1.tar:7: ", "utf.txt: not UTF-8"),
        ("2.tar:1: ", "leads out of the corpus"),
        ("3.tar:8: ", "`last`: a recording without a text"),
        ("3.tar:0: ", "truncated"),
        ("4.tar:0: ", "it stops inside a header: truncated"),
        ("5.tar:0: ", "what should be a header is none"),
    ] {
        assert!(
            found.iter().any(|problem| problem.starts_with(place) && problem.contains(what)),
            "{place}{what}: {found:#?}"
        );
    }
}

/// Sizes in headers are claims: none of them may be believed, or read into memory.
#[test]
fn sizes_that_lie_and_bombs_end_in_bounded_memory() {
    let claim = |name: &str, size: &[u8; 12], kind: u8| {
        let mut block = vec![0u8; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[124..136].copy_from_slice(size);
        block[156] = kind;
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
            .sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    };
    let huge = b"77777777777\0";
    let good = tar_of(&[("a.wav", b"sound"), ("a.txt", b"one")]);
    let good = &good[..good.len() - 1024];
    for (block, what) in [
        (claim("b.wav", huge, b'0'), "truncated"),
        (claim("b.wav", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", b'0'), "a size beyond any file"),
        (claim("b.wav", b"not a number", b'0'), "a size that is no number"),
        (claim("long name", huge, b'L'), "a name longer than any name"),
        (claim("extension", huge, b'x'), "a name longer than any name"),
    ] {
        let bytes = [good, &block, &[0; 4096]].concat();
        let dir = folder(&[("x.tar", &bytes), ("y.tar.gz", &gz(&bytes))]);
        let corpus = read(dir.path()).unwrap();
        assert_eq!(corpus.utterances.len(), 2, "what came before is kept");
        let found = problems(&corpus);
        assert_eq!(found.iter().filter(|problem| problem.contains(what)).count(), 2, "{what}: {found:?}");
    }
    // 96 MiB of zeros in 0.1 MB, of a member that claims 8 GiB.
    let zeros = gz(&vec![0; 16 << 20]);
    let bomb = [gz(&[good, &claim("zeros.bin", huge, b'0')].concat()), zeros.repeat(6)].concat();
    let dir = folder(&[("x.tar.gz", &bomb)]);
    let corpus = read(dir.path()).unwrap();
    let found = problems(&corpus);
    assert!(corpus.utterances.len() == 1 && found[0].contains("unpacks to more than 100 times"), "{found:?}");
}

/// Sound, text and speaker.
type Row<'a> = (Option<&'a [u8]>, Option<&'a str>, i64);

/// As Hugging Face's `datasets` writes them.
fn table(rows: &[Row]) -> Vec<u8> {
    let schema = "message schema { optional group audio { optional binary bytes; optional binary path (UTF8); }
        optional binary sentence (UTF8); optional int64 speaker; optional binary locale (UTF8); }";
    let features = "{\"info\": {\"features\": {\"audio\": {\"_type\": \"Audio\"},
        \"speaker\": {\"names\": [\"anna\", \"bob\"], \"_type\": \"ClassLabel\"}}}}";
    let pair = ::parquet::file::metadata::KeyValue::new("huggingface".to_owned(), features.to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![pair])).build();
    let schema = std::sync::Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(vec![], schema, std::sync::Arc::new(properties)).unwrap();
    for rows in rows.chunks(2) {
        let mut group = writer.next_row_group().unwrap();
        let optional = |cells: Vec<Option<&[u8]>>, full: i16| {
            let levels: Vec<i16> = cells.iter().map(|cell| if cell.is_some() { full } else { full - 1 }).collect();
            (cells.into_iter().flatten().map(|cell| ByteArray::from(cell.to_vec())).collect::<Vec<_>>(), levels)
        };
        let columns = [
            optional(rows.iter().map(|row| row.0).collect(), 2),
            optional(rows.iter().map(|_| Some(&b"x.flac"[..])).collect(), 2),
            optional(rows.iter().map(|row| row.1.map(str::as_bytes)).collect(), 1),
        ];
        for (values, levels) in columns {
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        let numbers: Vec<i64> = rows.iter().map(|row| row.2).collect();
        column.typed::<Int64Type>().write_batch(&numbers, Some(&vec![1; rows.len()]), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let (values, levels) = optional(rows.iter().map(|_| Some(&b"de"[..])).collect(), 1);
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn parquet_with_labels_and_holes() {
    let bytes = table(&[
        (Some(b"sound 0"), Some("null"), 0),
        (Some(b"sound 1"), None, 1),
        (Some(b"sound 2"), Some("zwei"), 1),
        (None, Some("drei"), 5),
        (Some(b"sound 4"), Some("vier"), 0),
    ]);
    let dir = folder(&[("train-00000-of-00001.parquet", &bytes)]);
    let corpus = read(dir.path()).unwrap();
    assert_eq!(corpus.format, CorpusFormat::Parquet);
    assert_eq!(problems(&corpus), ["train-00000-of-00001.parquet:2: the text is empty"]);
    let speakers: Vec<_> = corpus.utterances.iter().map(|row| (row.id, row.speaker, row.language)).collect();
    assert_eq!(speakers[0], ("train-00000-of-00001/0", "anna", Some("de")));
    assert_eq!((speakers[1].1, speakers[2].1), ("bob", "5"));
    let feed = AudioFeed::new(corpus.utterances.iter().enumerate().map(|(index, row)| (index, row.audio)));
    assert_eq!((&*feed.take(0).unwrap(), &*feed.take(1).unwrap()), (&b"sound 0"[..], &b"sound 2"[..]));
    assert_eq!(feed.take(2).unwrap_err().reason, "no sound in its row");
    assert_eq!(&*feed.take(3).unwrap(), b"sound 4", "the rows after it are there");
    assert_eq!(corpus.utterances.get(1).audio.read().unwrap(), b"sound 2");
    let dir = folder(&[("a.parquet", &bytes[..bytes.len() - 9]), ("b.parquet", b"PAR1"), ("c.parquet", &bytes)]);
    let corpus = read(dir.path()).unwrap();
    assert_eq!(corpus.utterances.len(), 4);
    let found = problems(&corpus);
    assert!(
        found[0].starts_with("a.parquet:0: damaged: ") && found[1].starts_with("b.parquet:0: damaged: "),
        "{found:?}"
    );
}

#[test]
fn shar_takes_texts_from_cuts_and_sound_from_recordings() {
    let cut = |id: &str, text: &str| {
        format!(
            "{{\"id\": \"{id}\", \"duration\": 1.0, \"supervisions\": [{{\"text\": \"{text}\", \"speaker\": \"p1\", \"language\": \"English\"}}], \"recording\": {{\"id\": \"r-{id}\"}}}}\n"
        )
    };
    let cuts = gz([cut("c1", "one"), cut("c2", "two"), cut("c3", "gone"), "\n[]\n".into()].concat().as_bytes());
    let sound = tar_of(&[("c1.flac", b"sound 1"), ("c1.json", b"{}"), ("r-c2.flac", b"sound 2"), ("c3.nodata", b"")]);
    let dir = folder(&[("cuts.000000.jsonl.gz", &cuts), ("recording.000000.tar", &sound)]);
    let corpus = read(dir.path()).unwrap();
    assert_eq!(corpus.format, CorpusFormat::Shar);
    let row = |id: &str, sound: &str, text: &str| [id, sound, text, "p1", "en"].map(String::from);
    assert_eq!(told(&corpus), [row("c1", "sound 1", "one"), row("c2", "sound 2", "two")]);
    assert_eq!(
        problems(&corpus),
        ["recording.000000.tar:3: `c3`: a cut without a recording", "recording.000000.tar:5: not a JSON object"]
    );
}

#[test]
fn archives_of_layouts_of_folders() {
    let ljspeech: &[(&str, &[u8])] = &[
        ("LJSpeech-1.1/README", b"about"),
        ("LJSpeech-1.1/wavs/b.wav", b"sound of b"),
        ("LJSpeech-1.1/wavs/a.wav", b"sound of a"),
        ("LJSpeech-1.1/metadata.csv", b"a|one\nb|two\nc|gone\n"),
        ("../outside.wav", b"x"),
    ];
    let vctk: &[(&str, &[u8])] = &[
        ("txt/p1/p1_001.txt", b"one"),
        ("wav48/p1/p1_001.wav", b"sound of a"),
        ("txt/p2/p2_001.txt", b"two"),
        ("wav48/p2/p2_001.wav", b"sound of b"),
    ];
    for (file, bytes) in [("lj.tar", tar_of(&ljspeech[..4])), ("lj.tar.gz", gz(&tar_of(&ljspeech[..4])))] {
        let dir = folder(&[(file, &bytes)]);
        let corpus = read(&dir.path().join(file)).unwrap();
        assert_eq!(corpus.format, CorpusFormat::Ljspeech);
        let rows: Vec<_> = told(&corpus).into_iter().map(|[id, sound, text, ..]| [id, sound, text]).collect();
        assert_eq!(rows, [["b", "sound of b", "two"], ["a", "sound of a", "one"]], "in the order of the archive");
        assert!(
            corpus.problems[0]
                .to_string()
                .ends_with("metadata.csv:3: no recording wavs/c.wav (nor .flac, .ogg, .opus, .mp3)")
        );
    }
    let dir = folder(&[("v.tar", &tar_of(vctk))]);
    let corpus = read(dir.path()).unwrap();
    assert_eq!((corpus.format, told(&corpus)[1][3].as_str()), (CorpusFormat::Vctk, "p2"));
    let named = ReadOptions { format: CorpusFormat::Piper, speaker_pattern: None };
    let error = crate::corpus::read(&dir.path().join("v.tar"), &named).unwrap_err();
    assert!(explained(&error).contains("not a corpus in the layout Piper"), "{error}");
}

#[cfg(feature = "remote")]
mod remote {
    use super::*;
    use crate::storage::faulty_server::{FaultyServer, Trouble};

    fn found(store: &Store, keys: &[&str]) -> Found {
        let unit = |key: &&str| Unit::Tar(Shard::new(store, store.head(key).unwrap(), Packing::Plain));
        let training = keys.iter().map(unit).collect();
        Found { format: CorpusFormat::Webdataset, why: String::new(), dir: "x".into(), training, validation: vec![] }
    }

    fn read_found(found: &Found) -> Corpus {
        super::super::read(found, Path::new("s3://bucket/x"), &ReadOptions::default()).unwrap()
    }

    #[test]
    fn tars_and_loose_files_behind_a_url() {
        let server = FaultyServer::start();
        server.put("x/s-0.tar", tar_of(CLIPS));
        let at = |name: &str| read(Path::new(&format!("http://127.0.0.1:{}/bucket/{name}", server.port))).unwrap();
        assert_eq!(told(&at("x/s-{0..0}.tar")), told(&at("x/s-0.tar")));
        assert_eq!(told(&at("x/s-0.tar"))[3][1], "sound of d");
        let store = Store::open_with("s3://bucket/lj", &server.options()).unwrap();
        server.put("lj/metadata.csv", "a|one\n");
        server.put("lj/wavs/a.wav", "sound of a");
        let (tree, dir) = crate::corpus::tree::Tree::bucket(&store).unwrap();
        let corpus = crate::corpus::of_tree(&tree, &dir, &ReadOptions::default()).unwrap();
        assert_eq!(told(&corpus), [["a", "sound of a", "one", "lj", ""].map(String::from)]);
    }

    #[test]
    fn a_shard_that_cannot_be_read_is_counted_and_passed_over() {
        let server = FaultyServer::start();
        let store = Store::open_with("s3://bucket/x", &server.options()).unwrap();
        (0..3).for_each(|n| server.put(&format!("x/{n}.tar"), tar_of(CLIPS)));
        let found = found(&store, &["0.tar", "1.tar", "2.tar"]);
        server.trouble(|request| (request.key == "x/1.tar").then_some(Trouble::Status(500)));
        let corpus = read_found(&found);
        assert_eq!((corpus.utterances.len(), corpus.problems.len()), (8, 1));
        let problem = corpus.problems[0].to_string();
        assert!(problem.starts_with("s3://bucket/x/1.tar: 500 Internal Server Error"), "{problem}");
        // What was read to its end is known, and not read again.
        let again = read_found(&found);
        let asked = server.requests().iter().filter(|request| request.key == "x/0.tar").count();
        assert_eq!((again.utterances.len(), asked), (8, 1));
        // It may fail when its sound is read, too: that passes, so it is not remembered.
        server.trouble(|_| None);
        let corpus = read_found(&found);
        server.trouble(|request| (request.key == "x/1.tar").then_some(Trouble::Half));
        let feed = AudioFeed::new(corpus.utterances.iter().enumerate().map(|(index, row)| (index, row.audio)));
        let read: Vec<_> = (0..12).map(|index| feed.take(index)).collect();
        assert!(read[..4].iter().chain(&read[8..]).all(Result::is_ok));
        assert!(read[4..8].iter().all(|read| read.as_ref().is_err_and(|unread| unread.may_pass)), "{:?}", read[4]);
        let asked = server.requests().iter().filter(|request| request.key == "x/1.tar").count();
        assert!(asked <= 8, "what failed is not asked for again by every clip: {asked}");
        // One that was replaced since it was looked at is another shard.
        server.trouble(|_| None);
        server.put("x/0.tar", tar_of(&CLIPS[..4]));
        assert!(
            corpus.utterances.get(0).audio.read().unwrap_err().to_string().contains("changed since it was looked at")
        );
    }
}

/// A tar and a table that are right, to be spoilt.
fn samples() -> [(&'static str, Vec<u8>); 4] {
    let rows: Vec<Row> = vec![(Some(b"sound"), Some("text"), 0); 3];
    let long = "x/".repeat(80) + "a.wav";
    let tar = tar_of(&[&CLIPS[..4], &[(long.as_str(), b"sound")]].concat());
    [
        ("x.tar", tar.clone()),
        ("x.tar.gz", gz(&tar)),
        ("x.parquet", table(&rows)),
        ("cuts.0.jsonl.gz", gz(b"{\"id\": \"a\"}\n")),
    ]
}

fn try_shard(dir: &TempDir, name: &str, bytes: &[u8]) -> Result<(), TestCaseError> {
    fs::write(dir.path().join(name), bytes).unwrap();
    let Ok(corpus) = read(dir.path()) else { return Ok(()) };
    prop_assert!(corpus.utterances.len() + corpus.problems.len() <= 64);
    let feed = AudioFeed::new(corpus.utterances.iter().enumerate().map(|(index, row)| (index, row.audio)));
    for (index, row) in corpus.utterances.iter().enumerate().filter(|(_, row)| row.audio.file().is_none()) {
        if let Ok(sound) = feed.take(index) {
            prop_assert!(sound.len() <= bytes.len().max(1 << 16), "more than there is");
        }
        prop_assert!(!row.text.is_empty() && !row.id.is_empty());
    }
    Ok(())
}

fn fuzz<T: Strategy>(cases: u32, strategy: T, make: impl Fn(&[u8], T::Value) -> Vec<u8>) {
    let samples = samples();
    let dirs = samples.each_ref().map(|_| folder(&[]));
    fs::write(dirs[3].path().join("recording.0.tar"), &samples[0].1).unwrap();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let run =
        |(which, value): (usize, T::Value)| try_shard(&dirs[which], samples[which].0, &make(&samples[which].1, value));
    runner.run(&(0..samples.len(), strategy), run).unwrap();
}

#[test]
fn spoilt_shards_never_panic() {
    fuzz(400, prop::collection::vec(spoil(), 0..5), |bytes, spoils: Vec<Spoil>| spoilt(bytes.to_vec(), &spoils));
}

#[test]
fn random_shards_never_panic() {
    fuzz(100, prop::collection::vec(any::<u8>(), 0..1_500), |_, bytes| bytes);
}

/// The footer says where everything lies: it is what a hostile table would change.
#[test]
fn spoilt_footers_of_tables_never_panic() {
    let flips = prop::collection::vec((any::<usize>(), any::<u8>()), 1..4);
    fuzz(200, flips, |bytes, flips| {
        let mut bytes = bytes.to_vec();
        let tail = bytes.len().saturating_sub(700);
        let length = bytes.len() - tail;
        flips.iter().for_each(|(at, bits)| bytes[tail + at % length] ^= bits);
        bytes
    });
}
