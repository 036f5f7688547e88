//! The same interface over a folder and over a server that fails in every way that servers do.

use super::*;
use std::io::Read;

fn names(store: &Store, prefix: &str) -> Vec<String> {
    store.list(prefix).unwrap().map(|object| object.unwrap().key).collect()
}

/// What every store does.
fn behaves(store: &Store) {
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert_eq!(store.get("a/b.txt").unwrap_err().fault, Fault::Absent);
    store.put("a/b.txt", bytes("hello there")).unwrap();
    assert!(!store.put_if_absent("a/b.txt", bytes("other")).unwrap());
    assert!(store.put_if_absent("c.txt", bytes("other")).unwrap());
    assert_eq!((&*store.get("a/b.txt").unwrap(), &*store.get("c.txt").unwrap()), (&b"hello there"[..], &b"other"[..]));
    let object = store.head("a/b.txt").unwrap();
    assert_eq!((object.bytes, &*object.key), (11, "a/b.txt"));
    assert_eq!(&*store.get_range(&object, 6..11).unwrap(), b"there");
    assert!(store.get_range(&object, 6..12).is_err(), "exactly what was asked for");
    let mut all = names(store, "");
    all.sort();
    assert_eq!(
        (all, names(store, "a"), names(store, "none")),
        (vec!["a/b.txt".into(), "c.txt".into()], vec!["a/b.txt".into()], vec![])
    );
    let mut reader = store.reader(&object).unwrap();
    reader.skip(6).unwrap();
    let mut rest = String::new();
    reader.read_to_string(&mut rest).unwrap();
    assert_eq!((&*rest, reader.position()), ("there", 11));
    let listed = store.list("a").unwrap().next().unwrap().unwrap();
    assert_eq!(listed, object, "a listing says what a look says");
    store.put("a/b.txt", bytes("hello again")).unwrap();
    assert_eq!(store.get_range(&object, 0..5).unwrap_err().fault, Fault::Changed);
    store.delete("a/b.txt").unwrap();
    store.delete("a/b.txt").unwrap();
    assert_eq!(store.head("a/b.txt").unwrap_err().fault, Fault::Absent);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"of a file").unwrap();
    store.put_file("x/y", file.path()).unwrap();
    assert_eq!(&*store.get("x/y").unwrap(), b"of a file");
}

#[test]
fn a_folder_is_a_store_and_keys_stay_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("not/there/yet");
    let store = Store::folder(&inner);
    behaves(&store);
    assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 3, "nothing is left of writing");
    for outside in ["../x", "/etc/passwd", "a/../../x"] {
        assert_eq!(store.get(outside).unwrap_err().fault, Fault::Unsupported, "{outside}");
    }
    let url = Store::open(&format!("file://{}", inner.display())).unwrap();
    assert_eq!((url.as_folder(), url.name("c.txt")), (Some(&*inner), inner.join("c.txt").display().to_string()));
}

#[cfg(feature = "remote")]
mod remote {
    use super::super::faulty_server::{FaultyServer, Trouble};
    use super::*;
    use crate::error::Explained;
    use std::time::{Duration, Instant};

    fn bucket(prefix: &str) -> (FaultyServer, Store) {
        let server = FaultyServer::start();
        let store = Store::open_with(&format!("s3://bucket/{prefix}"), &server.options()).unwrap();
        (server, store)
    }

    fn explained(error: &Error) -> String {
        Explained::of(error).to_string()
    }

    #[test]
    fn a_bucket_is_a_store() {
        behaves(&bucket("some/prefix/").1);
        behaves(&bucket("").1);
    }

    #[test]
    fn what_passes_is_asked_again() {
        let (server, store) = bucket("p");
        let long: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        server.put("p/long", long.clone());
        for trouble in [
            Trouble::Status(500),
            Trouble::Status(503),
            Trouble::Status(429),
            Trouble::Silence,
            Trouble::Half,
            Trouble::Drip,
            Trouble::Short,
        ] {
            server.trouble(move |request| (request.number < 2).then_some(trouble));
            let object = Object { key: "long".into(), bytes: long.len() as u64, etag: None };
            assert_eq!(store.get_range(&object, 0..200_000).unwrap(), long, "{trouble:?}");
            assert_eq!(server.requests().len(), 3, "{trouble:?}");
        }
    }

    #[test]
    fn what_stays_is_told_in_time_and_without_a_credential() {
        let (server, store) = bucket("p");
        server.put("p/x", "some bytes");
        let object = Object { key: "x".into(), bytes: 10, etag: None };
        for (trouble, fault, what) in [
            (
                Trouble::Status(403),
                Fault::Refused,
                "s3://bucket/p/x: refused (403 Forbidden ExpiredToken)\nhint: credentials",
            ),
            (Trouble::Status(401), Fault::Refused, "s3://bucket/p/x: refused (401"),
            (Trouble::Status(404), Fault::Absent, "s3://bucket/p/x: not found (404"),
            (
                Trouble::Status(500),
                Fault::Unreachable,
                "s3://bucket/p/x: 500 Internal Server Error ExpiredToken; asked 4 times in",
            ),
            (Trouble::Silence, Fault::Unreachable, "s3://bucket/p/x: no answer in time; asked 4 times in"),
            (Trouble::Half, Fault::Unreachable, "s3://bucket/p/x: half an answer; asked 4 times in"),
            (Trouble::Short, Fault::Unreachable, "s3://bucket/p/x: "),
        ] {
            server.trouble(move |_| Some(trouble));
            let start = Instant::now();
            let error = store.get_range(&object, 0..10).unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(10), "{trouble:?}");
            let text = explained(&error);
            assert!(error.fault == fault && text.starts_with(what), "{trouble:?}: {error:?} {text}");
            for secret in ["AKIDEXAMPLE", "wJalrXUtnFEMIsecret"] {
                assert!(!format!("{text} {error:?}").contains(secret), "{text}");
            }
        }
        let nobody = Store::open_with("http://127.0.0.1:1/x", &server.options()).unwrap();
        let error = nobody.head("y").unwrap_err();
        assert!(error.fault == Fault::Unreachable && error.to_string().contains("onnection refused"), "{error}");
    }

    #[test]
    fn a_token_that_expires_is_asked_for_again() {
        let (server, store) = bucket("p");
        server.put("p/x", "some bytes");
        // The first answer is a refusal, as when a token has just expired; the next request has another one.
        server.trouble(|request| (request.number == 0).then_some(Trouble::Status(403)));
        assert_eq!(&*store.get("x").unwrap(), b"some bytes");
    }

    #[test]
    fn a_listing_goes_on_where_it_failed_and_holds_a_page() {
        let (server, store) = bucket("p");
        (0..250).for_each(|n| server.put(&format!("p/{n:03}"), "x"));
        server.trouble(|request| (request.number % 2 == 1).then_some(Trouble::Status(500)));
        let all = names(&store, "");
        assert_eq!(all, (0..250).map(|n| format!("{n:03}")).collect::<Vec<_>>());
        server.trouble(|_| None);
        server.list_also(usize::MAX);
        assert_eq!(store.list("").unwrap().take(1_000).filter(Result::is_ok).count(), 1_000, "without an end");
        assert!(server.requests().len() <= 12);
    }

    #[test]
    fn urls_with_credentials_are_refused_without_being_told() {
        for url in ["https://me:hunter2@host/x", "https://host/x?X-Amz-Signature=hunter2", "s3://me:hunter2@bucket/x"] {
            let error = Store::open(url).unwrap_err();
            let text = explained(&error);
            assert!(text.contains("credentials in a URL are not taken\nhint: ") && !text.contains("hunter2"), "{text}");
        }
        let text = explained(&Store::open("ftp://host/x").unwrap_err());
        assert_eq!(
            text,
            "ftp://host/x: unknown scheme `ftp`\nhint: s3://, gs://, az://, https:// and file:// are read"
        );
    }

    #[test]
    fn files_of_a_web_server_are_read_by_name() {
        let server = FaultyServer::start();
        server.put("x.tar", "some bytes");
        let store = Store::open(&format!("http://127.0.0.1:{}/bucket", server.port)).unwrap();
        let object = store.head("x.tar").unwrap();
        assert_eq!((object.bytes, &*store.get_range(&object, 5..10).unwrap()), (10, &b"bytes"[..]));
    }
}
