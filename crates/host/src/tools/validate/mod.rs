//! What a configuration would do on this machine, looked at without running it: settings against cores, GPUs, disk and
//! corpus. Nothing here is a measurement of speed, and nothing claims to be.

mod checks;
mod facts;

pub use facts::{Facts, Placement, Planned, Room, Speech};

use crate::config::{Config, Error, Recipe, RunFacts, Start, Training};
use crate::error::Explained;
use crate::tools::report::{Finding, FindingsReport, Section};
use indicatif::HumanBytes;
use serde_json::json;

/// The report of a configuration that cannot even be read: everything that is wrong with it.
pub fn refused(wrong: &[Error]) -> FindingsReport {
    let mut section = Section::new("Configuration");
    section.findings = wrong.iter().map(wrong_value).collect();
    let number = wrong.len();
    let title = format!("The configuration has {number} wrong {}", if number == 1 { "value" } else { "values" });
    FindingsReport { sections: vec![section], ..FindingsReport::new(title) }
}

fn wrong_value(error: &Error) -> Finding {
    let (fact, advice) = match error {
        Error::Invalid { origin, wrong } => {
            let advice = wrong.advice().unwrap_or("correct it".into());
            (format!("{origin}: {}", wrong.fact), format!("{origin}: {advice}"))
        }
        unread => (Explained::of(unread).fact, "correct it".into()),
    };
    Finding::problem("config", 1.0, fact, advice)
}

pub fn validate(config: &Config, facts: &Facts) -> FindingsReport {
    let sections = [
        ("Corpus", checks::CORPUS),
        ("Loading", checks::LOADING),
        ("Batches", checks::BATCHES),
        ("Step", checks::STEP),
        ("Devices", checks::DEVICES),
        ("Cache", checks::CACHE),
    ];
    let section = |(title, checks): (&str, &[checks::Check])| Section {
        findings: checks.iter().filter_map(|check| check(config, facts)).collect(),
        ..Section::new(title)
    };
    let mut sections: Vec<Section> = sections.into_iter().map(section).collect();
    sections.retain(|section| !section.findings.is_empty());
    sections.push(expectation(config, facts));
    let planned = facts.speech().and_then(|speech| speech.planned.as_ref());
    let figures = json!({
        "cores": facts.cores,
        "workers": config.data.loader_workers(),
        "clips": facts.speech().map(|speech| speech.clips),
        "speech_seconds": facts.speech().map(|speech| speech.seconds),
        "speech_seconds_is_estimate": facts.speech().map(|speech| speech.planned.is_none()),
        "cache_bytes": facts.speech().map(|speech| speech.bytes),
        "cache_free_bytes": facts.room.free_bytes,
        "steps_per_epoch": planned.map(|planned| planned.batches / config.training.gradient_accumulation_steps as usize),
        "padding_share": planned.map(|planned| planned.padding_share),
        "host_bytes": planned.map(|planned| planned.host_bytes),
    });
    FindingsReport {
        sections,
        figures,
        ..FindingsReport::new("Validation: settings against this machine and corpus; nothing was run")
    }
}

/// What to expect, and on what grounds.
fn expectation(config: &Config, facts: &Facts) -> Section {
    let mut section = Section::new("What to expect");
    let Some(speech) = facts.speech() else {
        section.row("a run", "nothing can be said without a corpus");
        return section;
    };
    let accumulated = config.training.gradient_accumulation_steps as usize;
    match &speech.planned {
        Some(planned) => {
            let steps = (planned.batches / accumulated).max(1);
            let seconds = speech.train_seconds / steps as f64;
            section
                .row("an epoch", format!("{steps} steps of {seconds:.1} s of speech (planned from the cached clips)"))
                .row(
                    "a batch",
                    format!(
                        "{} frames, {:.1} % of them padding (planned)",
                        planned.frames,
                        planned.padding_share * 100.0
                    ),
                )
                .row("host memory", format!("{} for batches (counted)", HumanBytes(planned.host_bytes)));
        }
        None => {
            let batch = config.data.batch_size * accumulated;
            let steps = (speech.clips as f64 * (1.0 - config.data.val_split) / batch as f64).ceil().max(1.0);
            let ground = "batch_size against the number of clips; exact once the cache is built";
            let own = config.data.frame_budget.is_some();
            let epoch = if own {
                "depends on frame_budget; known once the cache is built".into()
            } else {
                format!("about {steps} steps ({ground})")
            };
            section.row("an epoch", epoch);
            let first = format!("builds features of {} clips first, once: {}", speech.clips, estimate(speech));
            section.row("the first run", first);
        }
    }
    training(config, speech, &mut section);
    let where_to = match facts.placement.as_ref().map(|placement| &placement.model) {
        Ok(Some(gpu)) => format!("trains on {}", gpu.name),
        Ok(None) => "trains on the CPU: right for trying things, slow for a voice".into(),
        Err(_) => "does not start: see Devices".into(),
    };
    section.row("the run", where_to);
    section.row("its speed", "not measured here: `myxtts profile` does, `myxtts configure` tunes it");
    section
}

/// How a voice would be trained from nothing: what is given, and what the program would choose for the rest.
fn training(config: &Config, speech: &Speech, section: &mut Section) {
    let held_out = speech.clips as f64 * (1.0 - speech.train_seconds / speech.seconds);
    let facts = RunFacts {
        hours: speech.train_seconds / 3600.0,
        speakers: speech.speakers,
        held_out: held_out.round() as usize,
        start: Start::Nothing,
    };
    let recipe = Recipe::voice(&facts, config.model.size);
    let mut filled = config.clone();
    recipe.fill(&mut filled);
    let why = |given: bool, why: &str| if given { "as given".to_owned() } else { why.to_owned() };
    let Training { steps, epochs, learning_rate, warmup_steps, .. } = &config.training;
    let length = [
        filled.training.epochs.map(|epochs| format!("{epochs} epochs")),
        filled.training.steps.map(|steps| format!("{steps} steps at most")),
    ];
    let length: Vec<String> = length.into_iter().flatten().collect();
    let length_why = why(steps.or(*epochs).is_some(), &recipe.steps.why);
    let (rate, warmup) = (filled.training.peak_rate(), filled.training.warmup());
    let rate_why = why(learning_rate.is_some(), &recipe.learning_rate.why);
    let warmup_why = why(warmup_steps.is_some(), &recipe.warmup_steps.why);
    let dropout_why = why(config.model.dropout.is_some(), &recipe.dropout.why);
    section
        .row("the training", format!("{} ({length_why})", length.join(", ")))
        .row("", format!("learning rate up to {rate:.1e} ({rate_why}) after {warmup} steps ({warmup_why})"))
        .row("", format!("dropout {} ({dropout_why})", filled.model.dropout_share()));
}

/// "12.3 MiB, estimated from 24 of 200 recordings".
fn estimate(speech: &Speech) -> String {
    let ground = match &speech.planned {
        Some(_) => "counted".to_owned(),
        None => format!("estimated from {} of {} recordings", speech.sampled, speech.clips),
    };
    format!("{} for {:.2} hours, {ground}", HumanBytes(speech.bytes), speech.seconds / 3600.0)
}

/// An error of the library as a finding: its fact, and its hints as advice.
fn problem(code: &'static str, error: &Explained) -> Finding {
    let advice = if error.hints.is_empty() { "correct it".to_owned() } else { error.advice() };
    // A run that does not start loses all of its time.
    Finding::problem(code, 1.0, &error.fact, advice)
}
