//! Speaking with random weights: what is packed together, padded or streamed sounds as if it were not.

use super::network::Sizes;
use super::*;
use host::config::{Config, Overrides};

fn config() -> Config {
    let mut config = Config::resolve(None, Overrides::default()).unwrap();
    let model = &mut config.model;
    (model.text_dim, model.text_layers, model.text_heads) = (32, 2, 2);
    (model.decoder_dim, model.decoder_layers, model.decoder_heads) = (32, 3, 2);
    (model.vocoder_dim, model.vocoder_layers) = (32, 2);
    config
}

fn synthesizer(device: Device) -> Synthesizer {
    of_precision(Precision::Light, device)
}

fn of_precision(precision: Precision, device: Device) -> Synthesizer {
    Synthesizer::untrained(&config(), 4.0, device, precision).unwrap()
}

fn request(text: &str) -> Request {
    let mut options = Options::default();
    options.sampling.steps = 2;
    Request { text: text.into(), options, ..Request::default() }
}

/// Texts of one clause and of several, with options of their own.
fn mixed() -> Vec<Request> {
    let mut requests: Vec<Request> = [
        "One fox.",
        "Two foxes ran over the hill and far away. Then they slept, and nobody woke them.",
        "Three!",
        "A b c d.",
    ]
    .map(request)
    .into();
    requests[0].options.seed = 7;
    requests[1].options.speed = 1.3;
    requests[2].options.sampling.guidance = 1.0;
    requests[2].prompt = Some(prompt(50, 3));
    requests[3].options.sampling.steps = 3;
    requests
}

fn together(synthesizer: &Synthesizer, requests: &[Request]) -> Vec<Vec<f32>> {
    let mut utterances: Vec<Utterance> = requests.iter().map(|request| synthesizer.begin(request).unwrap()).collect();
    let mut spoken = vec![Vec::new(); requests.len()];
    while utterances.iter().any(|utterance| !utterance.is_done()) {
        let now = synthesizer.advance(&mut utterances.iter_mut().collect::<Vec<_>>()).unwrap();
        spoken.iter_mut().zip(now).for_each(|(all, some)| all.extend(some.unwrap()));
    }
    spoken
}

fn difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

/// All but what numerical noise does: phases add up what the pitch is off by, which is the last digit of a number.
#[track_caller]
fn same_sound(a: &[f32], b: &[f32], text: &str) {
    assert_eq!(a.len(), b.len(), "{text}");
    let energy = |x: &mut dyn Iterator<Item = f32>| x.map(|sample| f64::from(sample).powi(2)).sum::<f64>();
    let error = energy(&mut a.iter().zip(b).map(|(a, b)| a - b)) / energy(&mut a.iter().copied());
    let error_db = 10.0 * error.log10();
    assert!(error_db < -60.0, "{text}: off by {error_db:.1} dB");
}

#[test]
fn a_request_sounds_the_same_alone_and_among_others() {
    // In f32: eight bits round some values to the other side, which is more than the last digit.
    let synthesizer = of_precision(Precision::Full, Device::Cpu);
    let requests = mixed();
    for (request, packed) in requests.iter().zip(together(&synthesizer, &requests)) {
        let alone = synthesizer.speak(request).unwrap();
        assert!(alone.samples.iter().any(|sample| sample.abs() > 1e-3), "silence says nothing");
        same_sound(&alone.samples, &packed, &request.text);
    }
}

#[test]
fn loudness_is_a_gain_from_that_of_the_training() {
    let mut synthesizer = synthesizer(Device::Cpu);
    let mut speak = |loudness, normalize_audio| {
        synthesizer.config.data.normalize_audio = normalize_audio;
        let options = Options { loudness, ..Options::default() };
        synthesizer.speak(&Request { text: "Hello.".into(), options, ..Request::default() }).unwrap().samples
    };
    let trained = speak(None, true);
    let halved: Vec<f32> = trained.iter().map(|sample| sample / 2.0).collect();
    let lower = Config::default().data.loudness().unwrap() - 20.0 * 2f64.log10();
    assert!(difference(&speak(Some(lower), true), &halved) < 1e-6);
    assert!(difference(&speak(Some(lower), false), &trained) < 1e-6, "nobody knows how loud it was");
}

#[test]
fn room_to_spare_changes_nothing() {
    let mut synthesizer = of_precision(Precision::Full, Device::Cpu);
    let exact = together(&synthesizer, &mixed());
    synthesizer.network.sizes = Sizes::Ladder;
    for (exact, padded) in exact.iter().zip(together(&synthesizer, &mixed())) {
        same_sound(exact, &padded, "with room to spare");
    }
}

/// Truth: the layers' names. Products are linear layers and convolutions over channels; the vocoder computes in f32, and the text's
/// convolutions read their weights so.
#[test]
fn weights_of_products_are_narrowed_and_no_others() {
    let (config, kind) = (config(), Kind::BFloat16);
    let (store, vocoder_store) = (VarStore::new(Device::Cpu), VarStore::new(Device::Cpu));
    let (_networks, products) = torchx::with_products(|| {
        let voice = Voice::new(&store.root(), &config.model, 40, 1, kind).unwrap();
        (voice, Vocoder::new(&vocoder_store.root(), &config))
    });
    network::narrow_weights(products, kind);
    assert!(vocoder_store.variables().values().all(|weight| weight.kind() == Kind::Float));
    for (name, weight) in store.variables() {
        let of_text = weight.dim() == 3 && (name.starts_with("encoder") || name.starts_with("duration"));
        let other = of_text || name.contains("depthwise") || name.contains("norm");
        let narrow = name.ends_with("weight") && weight.dim() >= 2 && !other;
        assert_eq!(weight.kind(), if narrow { kind } else { Kind::Float }, "{name}");
    }
}

/// Some seconds of nobody's speech.
fn prompt(frames: i64, seed: i64) -> Prompt {
    tch::manual_seed(seed);
    Prompt::of(&Tensor::randn([frames, 80], (Kind::Float, Device::Cpu)))
}

#[test]
fn a_prompt_changes_how_and_not_how_long_it_is_spoken() {
    let synthesizer = synthesizer(Device::Cpu);
    let speak = |prompt: Prompt| {
        let request = Request { prompt: Some(prompt), ..request("The same words as before.") };
        synthesizer.speak(&request).unwrap().samples
    };
    let (one, other, long) = (speak(prompt(31, 1)), speak(prompt(31, 2)), speak(prompt(200, 1)));
    assert!(difference(&one, &other) > 1e-6, "who speaks is not heard");
    // Only what is spoken comes back, however long the reference is.
    assert_eq!(one.len(), long.len());
    let (frames, _) = crate::synth::speak_tokens(
        &synthesizer.network.voice,
        &[1, 2, 3, 4],
        0,
        Some(prompt(31, 1)),
        &Options::default(),
        Device::Cpu,
    );
    assert!(frames.size()[0] < 30 && frames.size()[1] == 80, "{:?}", frames.size());
}

#[test]
fn a_mix_lies_between_its_speakers() {
    let synthesizer = synthesizer(Device::Cpu);
    let (ann, ben) = (prompt(40, 1), prompt(60, 2));
    let mix =
        |share: f64| Prompt { parts: vec![(ann.parts[0].0.clone(), 1.0 - share), (ben.parts[0].0.clone(), share)] };
    // One Euler step is linear in the velocity, and so is the mel.
    let mel = |prompt: &Prompt| {
        let mut options = Options::default();
        options.sampling.steps = 1;
        let voice = &synthesizer.network.voice;
        crate::synth::speak_tokens(voice, &[1, 2, 3, 4, 5], 0, Some(prompt.clone()), &options, Device::Cpu).0
    };
    let (ann, between, ben) = (mel(&ann), mel(&mix(0.25)), mel(&ben));
    let error = (&ann * 0.75 + &ben * 0.25 - between).abs().max().double_value(&[]);
    let apart = (ann - ben).abs().max().double_value(&[]);
    assert!(error < 1e-6 && apart > 10.0 * error, "{error} off, {apart} apart");
}

#[test]
fn guidance_by_the_speaker_goes_away_from_what_anybody_would_say() {
    let synthesizer = synthesizer(Device::Cpu);
    let mel = |guidance: f64, speaker_guidance: f64, prompt: Option<Prompt>| {
        let sampling = Sampling { steps: 1, guidance, speaker_guidance, temperature: 0.0 };
        let options = Options { sampling, ..Options::default() };
        let voice = &synthesizer.network.voice;
        crate::synth::speak_tokens(voice, &[1, 2, 3, 4, 5], 0, prompt, &options, Device::Cpu).0
    };
    let who = || Some(prompt(40, 1));
    let (whole, anybody, nothing) = (mel(1.0, 0.0, who()), mel(1.0, 0.0, None), mel(0.0, 0.0, None));
    let wanted = &nothing + (&whole - &nothing) * 2.0 + (&whole - &anybody) * 0.5;
    let error = (mel(2.0, 0.5, who()) - wanted).abs().max().double_value(&[]);
    assert!(error < 1e-4, "{error}");
}

#[test]
fn the_seed_decides() {
    let synthesizer = synthesizer(Device::Cpu);
    let speak = |seed: u64| {
        let mut request = request("The same words. And again the same words, in a second sentence.");
        request.options.seed = seed;
        synthesizer.speak(&request).unwrap().samples
    };
    let first = speak(5);
    tch::manual_seed(99);
    assert!(first == speak(5), "the same seed, other speech");
    assert!(difference(&first, &speak(6)) > 1e-3, "another seed, the same speech");
}

#[test]
fn a_stream_begins_with_a_clause_and_says_all() {
    let synthesizer = synthesizer(Device::Cpu);
    let mut request =
        request("When the fox woke up, it was late in the day, and so it went on sleeping until the night.");
    request.options.early = true;
    let mut utterance = synthesizer.begin(&request).unwrap();
    let first = synthesizer.advance(&mut [&mut utterance]).unwrap().remove(0).unwrap();
    let first_s = first.len() as f64 / f64::from(synthesizer.rate_hz());
    assert!(first_s > 0.2 && !utterance.is_done());
    while !utterance.is_done() {
        synthesizer.advance(&mut [&mut utterance]).unwrap().remove(0).unwrap();
    }
    assert!(utterance.seconds() > 3.0 * first_s && utterance.progress() == 1.0);
}

#[test]
fn text_without_anything_to_say_is_refused() {
    let synthesizer = synthesizer(Device::Cpu);
    for text in ["", " \n\t", "... !?", "🙂🎉", "\u{0}\u{7}\u{1b}", "—", "日本語"] {
        let error = synthesizer.begin(&request(text)).err().expect("nothing to say").to_string();
        assert!(error.contains("nothing to speak"), "{text:?}: {error}");
    }
    let mut foreign = request("Hallo");
    foreign.language = Some("de".into());
    assert!(synthesizer.begin(&foreign).err().unwrap().to_string().contains("does not speak `de`"));
}

/// What each clause of a text has: tokens.
fn clauses(synthesizer: &Synthesizer, text: &str) -> Vec<usize> {
    let mut utterance = synthesizer.begin(&request(text)).unwrap();
    let mut tokens = Vec::new();
    while let Some(clause) = utterance.next() {
        tokens.push(clause.tokens.len());
        utterance.skip(synthesizer).unwrap();
    }
    tokens
}

#[test]
fn odd_texts_become_clauses_of_bounded_length() {
    let synthesizer = synthesizer(Device::Cpu);
    let digits = "1234567890".repeat(20);
    let texts = [
        digits.as_str(),
        &"a".repeat(100_000),
        &"hello ".repeat(5000),
        "one 日本 مرحبا two\u{7}\u{0}three 🙂 four 🎉",
        "a\n\n\n\nb",
    ];
    for text in texts {
        let tokens = clauses(&synthesizer, text);
        assert!(!tokens.is_empty() && tokens.iter().all(|len| (2..=400).contains(len)), "{tokens:?}");
    }
    assert!(clauses(&synthesizer, &digits).iter().sum::<usize>() > 900, "200 digits are 200 words");
    assert_eq!(clauses(&synthesizer, "hello. 🙂🙂🙂 !!!\n\n... goodbye.").len(), 2);
}

#[test]
fn characters_that_are_not_known_are_named() {
    let synthesizer = synthesizer(Device::Cpu);
    let spoken = synthesizer.speak(&request("A fox and a 狐.")).unwrap();
    assert!(spoken.notes.len() == 1 && spoken.notes[0].ends_with("characters: 狐"), "{:?}", spoken.notes);
}

#[test]
fn a_synthesizer_may_move_to_another_thread() {
    fn moves<T: Send>() {}
    moves::<Synthesizer>();
    moves::<Utterance>();
    moves::<Request>();
}

#[test]
#[ignore = "needs a GPU"]
fn captured_graphs_say_what_eager_passes_say() {
    let device = Device::Cuda(0);
    let synthesizer = synthesizer(device);
    // The first time is eager, the second captures, the third replays.
    let runs: Vec<Vec<Vec<f32>>> = (0..3).map(|_| together(&synthesizer, &mixed())).collect();
    assert_eq!(synthesizer.notes(), Vec::<String>::new(), "nothing kept it from capturing");
    for later in &runs[1..] {
        for (eager, captured) in runs[0].iter().zip(later) {
            assert!(difference(eager, captured) < 1e-3);
        }
    }
    // Other lengths in between, which share the graphs' memory.
    let request = request("Something else of quite another length, so that other graphs run in between these.");
    (0..3).for_each(|_| drop(synthesizer.speak(&request).unwrap()));
    for (eager, captured) in runs[0].iter().zip(together(&synthesizer, &mixed())) {
        assert!(difference(eager, &captured) < 1e-3);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_says_what_a_cpu_says() {
    let (cpu, mut gpu) = (synthesizer(Device::Cpu), synthesizer(Device::Cuda(0)));
    cpu.copy_weights_to(&mut gpu);
    for (a, b) in together(&cpu, &mixed()).iter().zip(together(&gpu, &mixed())) {
        // bf16 has three digits; sound is compared by its energy.
        let energy: f32 = a.iter().map(|sample| sample * sample).sum();
        let error: f32 = a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum();
        assert_eq!(a.len(), b.len());
        assert!(error < 0.05 * energy, "off by {:.1} %", 100.0 * error / energy);
    }
}
