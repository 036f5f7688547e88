//! What the corpus costs: padding, clips that are not trained on, and features that had to be made first.

use super::super::measure::RunMeasurement;
use super::loading::MOST;
use super::shares::percent;
use host::tools::report::{Finding, counted};

/// Share of the computed frames that hold no speech.
const PADDING: f64 = 0.25;
/// Share of the corpus that the limits of a run may leave out.
const REFUSED: f64 = 0.05;
/// Seconds of a core for one text, and for one second of sound, that are out of proportion.
const SLOW_TEXT_S: f64 = 20e-3;
const SLOW_SOUND_S: f64 = 0.05;
/// Seconds of waiting for one recording.
const SLOW_READ_S: f64 = 10e-3;
/// What happens once is held against the first hour of a run.
const HOUR_S: f64 = 3600.0;

/// Findings whose cost is a share of the clips, not of the time.
pub const OF_CLIPS: [&str; 2] = ["damaged-clips", "clips-left-out"];

pub fn padding(measured: &RunMeasurement) -> Option<Finding> {
    let share = measured.padding_share;
    (share > PADDING).then(|| {
        let cost = share * measured.compute_share();
        let fact = format!("{} of the frames that are computed hold no speech", percent(share));
        let advice = match measured.setup.padded {
            true => "leave out `pad_to_fixed_length` (--disable-static-shapes packs clips end to end)",
            false => "a batch is too large for this corpus: lower --batch-size, or refuse the few longest clips with --max-mel-frames",
        };
        Finding::problem("padding-waste", cost, fact, advice)
    })
}

pub fn damaged(measured: &RunMeasurement) -> Option<Finding> {
    let (clips, share) = (damaged_clips(measured), share(measured, damaged_clips(measured)));
    (clips > 0).then(|| {
        let fact = format!("{} cannot be used, {} of the corpus", counted(clips, "clip"), percent(share));
        Finding::warning("damaged-clips", share, fact, "`myxtts check DIR` lists them with reasons")
    })
}

pub fn left_out(measured: &RunMeasurement) -> Option<Finding> {
    let (clips, share) = (measured.corpus.refused, share(measured, measured.corpus.refused));
    (share > REFUSED).then(|| {
        let fact = format!("the limits leave out {}, {} of the corpus", counted(clips, "clip"), percent(share));
        let advice = "raise --max-mel-frames and --max-text-length, or cut clips with --long-clips split";
        Finding::warning("clips-left-out", share, fact, advice)
    })
}

pub fn nothing_held_out(measured: &RunMeasurement) -> Option<Finding> {
    (measured.corpus.held_out == 0).then(|| {
        let advice = "hold some clips out (`val_split: 0.05`, or --val-data), or nobody sees when training overfits";
        Finding::warning("nothing-held-out", 0.0, "no clip is held out for validation", advice)
    })
}

fn damaged_clips(measured: &RunMeasurement) -> usize {
    measured.corpus.damaged + measured.failures.len()
}

/// Share of the corpus that so many clips are.
fn share(measured: &RunMeasurement, clips: usize) -> f64 {
    clips as f64 / (known_clips(measured) + damaged_clips(measured)).max(1) as f64
}

fn known_clips(measured: &RunMeasurement) -> usize {
    measured.corpus.clips + measured.corpus.held_out + measured.corpus.refused
}

/// Features that had to be made before the first step: what took most of that, or that it was needed at all.
pub fn cold_cache(measured: &RunMeasurement) -> Option<Finding> {
    let building = measured.building;
    let (clips, seconds) = (building.built + building.encoded, building.seconds);
    if clips == 0 {
        return None;
    }
    let cost = (seconds.wall / HOUR_S).min(1.0);
    let most = MOST * (seconds.read + seconds.sound + seconds.text).max(1e-9);
    let each = |sum: f64| sum / clips as f64;
    let slow = |code, what: &str, sum: f64, advice: &str| {
        let fact = format!(
            "building the cache took {:.1} s before the first step, mostly {what}: {:.1} ms a clip",
            seconds.wall,
            each(sum) * 1e3
        );
        Some(Finding::warning(code, cost, fact, advice))
    };
    if seconds.text > most && each(seconds.text) > SLOW_TEXT_S {
        let advice = "the next run has these texts in the cache; `tokenizer: characters` needs no phonemes";
        return slow("slow-text", "for text", seconds.text, advice);
    }
    if seconds.read > most && each(seconds.read) > SLOW_READ_S {
        let advice = "the next run has these clips in the cache; copy the corpus to a local disk before a rebuild";
        return slow("slow-disk", "for reading", seconds.read, advice);
    }
    let audio_s =
        building.audio_seconds * building.built as f64 / known_clips(measured).max(building.built).max(1) as f64;
    if seconds.sound > most && seconds.sound > SLOW_SOUND_S * audio_s {
        let advice = "the next run has these clips in the cache; WAV at the training rate is the cheapest to read";
        return slow("slow-decode", "for decoding", seconds.sound, advice);
    }
    let fact =
        format!("{} had to be made for the cache: {:.1} s before the first step", counted(clips, "clip"), seconds.wall);
    let advice = "the next run finds them (unless `enable_caching: false`); `myxtts prepare DIR` makes them beforehand";
    Some(Finding::warning("cold-cache", cost, fact, advice))
}
