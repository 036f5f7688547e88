//! Graphs of random weights against the networks that wrote them, in onnxruntime.

use super::*;
use crate::model::graph::GraphWriter;
use crate::vocoder;
use host::config::{Overrides, Size};
use host::text::Tokenizer;
use std::path::PathBuf;

const LANGUAGE: &str = "de";

fn sampling() -> Sampling {
    Sampling { steps: 2, temperature: 0.667, guidance: 2.0, speaker_guidance: 0.0 }
}

fn options() -> Options {
    Options { sampling: sampling(), precision: Precision::Full, reference_encoder: false }
}

/// Where onnxruntime is, and the phonemes of a language.
fn python() -> Option<PathBuf> {
    if tokenizer().check().is_err() {
        host::skipped("espeak-ng is not installed");
        return None;
    }
    host::test_python("onnxruntime").map(PathBuf::from)
}

fn tokenizer() -> Tokenizer {
    let stored = r#"{"kind": "phonemes", "languages": ["de", "en"], "usual": "de", "espeak_ng": "1.51"}"#;
    serde_json::from_str(stored).unwrap()
}

fn small() -> Config {
    let mut config = Config::resolve(None, Overrides::default()).unwrap();
    let model = &mut config.model;
    (model.text_dim, model.text_layers, model.text_heads) = (32, 2, 2);
    (model.decoder_dim, model.decoder_layers, model.decoder_heads) = (32, 4, 2);
    (model.vocoder_dim, model.vocoder_layers) = (32, 2);
    config
}

/// With speakers whose references have so many frames; several make a mix.
fn untrained(config: Config, speakers: &[&[i64]]) -> ExportedVoice {
    tch::set_num_threads(1); // tests run side by side
    tch::manual_seed(7);
    let tokenizer = tokenizer();
    let (store, vocoder_store) = (VarStore::new(Device::Cpu), VarStore::new(Device::Cpu));
    let languages = tokenizer.languages().len();
    let (model, float) = (&config.model, tch::Kind::Float);
    let voice = Voice::new(&store.root(), model, tokenizer.vocab_size(), languages, float).unwrap();
    let vocoder = Box::new(Vocoder::new(&vocoder_store.root(), &config));
    for (_, weight) in named_parameters(&store).iter().chain(&named_parameters(&vocoder_store)) {
        // Biases, and what starts as zero, would hide what is wrong with them.
        if weight.dim() == 1 || weight.abs().max().double_value(&[]) == 0.0 {
            let _ = tch::no_grad(|| weight.shallow_clone().g_add_(&(weight.randn_like() * 0.05)));
        }
    }
    vocoder::settle(&vocoder_store, 150.0);
    let frames = |count: &i64| Tensor::randn([*count, model.n_mels], (float, Device::Cpu));
    let prompt = |parts: &&[i64]| {
        let parts = parts.iter().map(|count| Prompt::of(&frames(count)).parts.remove(0).0);
        let parts: Vec<_> = parts.collect();
        let share = 1.0 / parts.len() as f64;
        Prompt { parts: parts.into_iter().map(|frames| (frames, share)).collect() }
    };
    let speakers = speakers.iter().map(|parts| ("one".to_owned(), model.clones().then(|| prompt(parts)))).collect();
    let map = PhonemeMap::new(&tokenizer, LANGUAGE).unwrap();
    let stats = MelStats { mean: -5.0, std: 2.0 };
    ExportedVoice { voice, store, vocoder, vocoder_store, config, stats, map, language: LANGUAGE.into(), speakers }
}

#[track_caller]
fn is_the_same(voice: &ExportedVoice, options: &Options, python: &Path) {
    let found = verify(voice, options, python).unwrap().difference.unwrap();
    assert!(found.is_small(), "{found:?}");
}

/// A change of the network that the graph does not follow is found here, if it compiles.
#[test]
fn every_size_speaks_in_onnxruntime_as_it_does_here() {
    let Some(python) = python() else { return };
    for size in [Size::Tiny, Size::Small, Size::Normal, Size::Big] {
        let mut flags = Overrides::default();
        flags.set("model.size", Some(size));
        let config = Config::resolve(None, flags).unwrap();
        let sampling = Sampling { steps: 1, ..sampling() };
        is_the_same(&untrained(config, &[&[40]]), &Options { sampling, ..options() }, &python);
    }
}

/// References of other lengths, a mix, every guidance, halves, and a voice that was not in the file.
#[test]
fn every_way_to_speak_is_the_same_in_onnxruntime() {
    let Some(python) = python() else { return };
    let several = untrained(small(), &[&[30], &[64, 12], &[2]]);
    is_the_same(&several, &options(), &python);
    let guided = Sampling { guidance: 1.0, speaker_guidance: 1.5, ..sampling() };
    is_the_same(&several, &Options { sampling: guided, ..options() }, &python);
    is_the_same(&several, &Options { reference_encoder: true, ..options() }, &python);
    is_the_same(&several, &Options { precision: Precision::Half, ..options() }, &python);
    let narrow = verify(&several, &Options { precision: Precision::Int8, ..options() }, &python).unwrap();
    assert!(narrow.difference.is_none() && narrow.real_time_factor > 0.0);

    let mut config = small();
    config.model.context_share = 0.0;
    let alone = untrained(config, &[&[]]);
    is_the_same(&alone, &options(), &python);
    is_the_same(&alone, &Options { sampling: Sampling { guidance: 1.0, ..sampling() }, ..options() }, &python);
    let refused = alone.graph(&Options { reference_encoder: true, ..options() }, false).err().unwrap();
    assert!(refused.to_string().contains("context_share"), "{refused}");
}

#[test]
fn narrow_weights_make_small_files() {
    let Some(_) = python() else { return };
    let voice = untrained(small(), &[&[2]]);
    let bytes = |precision| voice.graph(&Options { precision, ..options() }, false).unwrap().bytes.len();
    let [full, half, int8] = [Precision::Full, Precision::Half, Precision::Int8].map(bytes);
    assert!(int8 < half && half < full, "{int8}, {half}, {full}");
}

#[test]
fn a_weight_that_the_graph_leaves_out_is_named() {
    let weight = |name: &str| (name.to_owned(), Tensor::zeros([2, 2], (tch::Kind::Float, Device::Cpu)));
    let weights = [weight("here"), weight("forgotten")];
    let mut g = GraphWriter::new(Precision::Full, &weights);
    g.weight(&weights[0].1);
    let error = g.finish().err().unwrap().to_string();
    assert!(error.ends_with("of the network: forgotten"), "{error}");
}
