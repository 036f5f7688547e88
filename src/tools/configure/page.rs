//! What `configure` found, for people: the sizes, the comparisons, the choices, before and after.

use super::search::SearchEnd;
use super::{ChosenSetting, SettingComparison, Trial, Tuned};
use crate::feed::{Roles, name};
use host::config::CacheContent;
use host::tools::report::{Finding, FindingsReport, Section};
use serde_json::json;

/// A machine whose steps vary more has something else to do.
const UNSTEADY_CV: f64 = 0.15;

impl Tuned {
    pub fn report(&self) -> FindingsReport {
        let mut sections = vec![self.sizes(), self.settings(), self.two_gpus(), self.chosen_values()];
        sections.extend(self.before_and_after());
        let figures = json!({
            "trials": self.found.trials,
            "too_large": self.found.too_large,
            "chosen": self.chosen,
            "choices": self.choices,
            "tried": self.tried,
            "gpus": self.gpus,
            "before": self.verified.as_ref().map(|(before, _)| before),
            "after": self.verified.as_ref().map(|(_, after)| after),
            "seconds": self.seconds,
        });
        FindingsReport {
            sections,
            figures,
            ..FindingsReport::new(format!("Settings found by trying, in {:.0} s", self.seconds))
        }
    }

    fn sizes(&self) -> Section {
        let mut section = Section::new("Sizes of batches");
        let fastest = self.found.fastest().map(|trial| trial.frames);
        let chosen = self.config.data.frame_budget;
        for trial in &self.found.trials {
            let memory = trial.peak_mib.map_or(String::new(), |mib| format!(" · {mib:.0} MiB"));
            let marks = [(chosen == Some(trial.frames), "chosen"), (fastest == Some(trial.frames), "fastest")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| format!(" · {mark}")).collect();
            let figures =
                format!("{:.0} s of speech a second · {:.1} ms a step", trial.audio_seconds_per_second, trial.step_ms);
            section.row(format!("{} frames", trial.frames), figures + &memory + &marks);
        }
        if let Some((frames, why)) = &self.found.too_large {
            section.row(format!("{frames} frames"), format!("too large: {why}"));
        }
        let (code, end) = match self.found.end {
            SearchEnd::Memory => ("largest", "memory sets the limit"),
            SearchEnd::Corpus => (
                "largest",
                "an epoch of this corpus would have fewer than eight steps beyond that, so nothing larger was tried",
            ),
            SearchEnd::Trials => ("largest", "as many as were to be tried"),
            SearchEnd::Time => ("time", "the time was over before memory was full: --seconds allows more"),
        };
        section.findings.push(Finding::good(code, end));
        let cvs = self.found.trials.iter().map(|trial| trial.step_cv);
        let unsteady = cvs.fold(0.0, f64::max);
        if unsteady > UNSTEADY_CV {
            let fact =
                format!("steps of one size varied by up to {:.0} %: only larger differences count", unsteady * 100.0);
            let advice = "try again with nothing else on the machine, and more --seconds";
            section.findings.push(Finding::warning("unsteady", 0.0, fact, advice));
        }
        if let Some(trial) = self
            .found
            .trials
            .iter()
            .find(|trial| Some(trial.frames) == chosen)
            .filter(|trial| trial.asked < self.asked_frames)
        {
            let fact =
                format!("{} frames a batch instead of {}: a step sees less speech", trial.frames, self.asked_frames);
            let parts = self.asked_frames.div_ceil(trial.frames);
            let advice = format!("`gradient_accumulation_steps: {parts}` makes steps as large as before");
            section.findings.push(Finding::warning("smaller-batch", 0.0, fact, advice));
        }
        section
    }

    fn settings(&self) -> Section {
        let mut section = Section::new("Other settings, both ways");
        for SettingComparison { setting, kept, left } in &self.tried {
            let speech = |(value, rate): &(String, f64)| format!("{value}: {rate:.0} s of speech a second");
            section.row(setting.clone(), format!("{} · {}", speech(kept), speech(left)));
        }
        if !self.on_gpu {
            section.row("precision, graphs", "not tried: a CPU computes in f32, and has no graphs");
        }
        section
    }

    fn two_gpus(&self) -> Section {
        let mut section = Section::new("One GPU or two?");
        let Some(predicted) = self.gpus.predicted else {
            section.row("here", "there is no GPU, so nothing about one was measured; with one, this command says whether two would help");
            return section;
        };
        let line = |ms: f64, gain: f64, how: &str| format!("{ms:.2} ms a batch, ×{gain:.2} ({how})");
        section.row("one", line(predicted.one_ms, 1.0, "measured"));
        let pair = match self.gpus.producer_consumer {
            Some(rate) => format!(
                "{rate:.0} s of speech a second, measured; predicted ×{:.2}",
                predicted.producer_consumer_gain()
            ),
            None => line(
                predicted.producer_consumer_ms,
                predicted.producer_consumer_gain(),
                "predicted from the times measured on one",
            ),
        };
        section.row("producer and consumer", pair);
        let guess = |how: &str| line(predicted.data_parallel_ms, predicted.data_parallel_gain(), how);
        let parallel = match &self.gpus.side_by_side {
            Some(Ok(rate)) => format!("{rate:.0} s of speech a second on {}, measured", self.gpus.count),
            Some(Err(why)) => guess(&format!("predicted; the ranks did not run: {why}")),
            None => guess("predicted, at 25 GB/s between the cards; `--model-gpu 0,1` trains so"),
        };
        section.row("two side by side", parallel);
        section.findings.push(Finding::good("two-gpus", format!("{} (a prediction)", predicted.answer())));
        section
    }

    fn chosen_values(&self) -> Section {
        let mut section = Section::new("Chosen");
        for ChosenSetting { key, value, reason } in &self.choices {
            let name = key.split_once('.').map_or(*key, |(_, name)| name);
            section.row(format!("{name}: {value}"), reason.clone());
        }
        section
    }

    fn before_and_after(&self) -> Option<Section> {
        let (before, after) = self.verified.as_ref()?;
        let mut section = Section::new("Before and after");
        let Some(before) = before else {
            section.row("before", "did not fit into memory");
            section.row("after", format!("{:.0} s of speech a second", after.audio_seconds_per_second));
            section.findings.push(Finding::good("verified", "it runs now"));
            return Some(section);
        };
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut row = |name: &str, of: &dyn Fn(&Trial) -> String| {
            section.row(name, format!("{} → {}", of(before), of(after)));
        };
        row("speech a second", &|trial| format!("{:.0} s", trial.audio_seconds_per_second));
        row("a step", &|trial| format!("{:.1} ms", trial.step_ms));
        row("frames a batch", &|trial| trial.frames.to_string());
        row("batches ready", &|trial| percent(trial.readiness));
        row("padding", &|trial| percent(trial.padding_share));
        row("memory", &|trial| trial.peak_mib.map_or("–".into(), |mib| format!("{mib:.0} MiB")));
        if self.config.data.cache_content == CacheContent::Mel {
            section
                .row("cache_content", "both from the cache as it is; the one with mel frames is built by the next run");
        }
        let gain = after.audio_seconds_per_second / before.audio_seconds_per_second;
        section.findings.push(match (after.is_faster_than(before), before.is_faster_than(after)) {
            (true, _) => Finding::good("verified", format!("×{gain:.2} speech a second")),
            (_, false) => Finding::good("verified", format!("×{gain:.2}: no difference that is more than chance")),
            (_, true) => Finding::warning(
                "slower",
                1.0 - gain,
                format!("×{gain:.2}: slower than before"),
                "run it again with nothing else on the machine; otherwise keep your settings",
            ),
        });
        Some(section)
    }
}

/// What the file says above its settings.
pub fn head(tuned: &Tuned, roles: Roles) -> Vec<String> {
    let on = if roles.data == roles.model {
        name(roles.model)
    } else {
        format!("{} and {}", name(roles.data), name(roles.model))
    };
    let speed = tuned.verified.as_ref().map_or(&tuned.chosen, |(_, after)| after).audio_seconds_per_second;
    vec![
        format!("Written by `myxtts configure` on {on}: {speed:.0} seconds of speech a second when it was tried."),
        "Each value stands beside the measurement it was chosen by. A flag wins over it.".into(),
    ]
}
