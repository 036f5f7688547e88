//! How long a run is and how it learns, where nobody says: by hours of speech, speakers, and what it starts from. A key
//! that is set wins. The figures behind it are in docs/results.md, "How long a training should be".

use super::{Config, Size};
use indicatif::HumanCount;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a run starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    #[default]
    Nothing,
    /// The weights of another run.
    Weights,
}

/// What is known of a run before its first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunFacts {
    /// Hours of speech that it trains on.
    pub hours: f64,
    pub speakers: usize,
    /// Clips that it is validated on.
    pub held_out: usize,
    pub start: Start,
}

/// A value, and why it is this one.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice<T> {
    pub value: T,
    pub why: String,
}

/// Length and learning of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub steps: Choice<u64>,
    pub learning_rate: Choice<f64>,
    pub warmup_steps: Choice<u64>,
    pub dropout: Choice<f64>,
    /// Steps that may pass without better held-out speech; none where too little is held out to tell.
    pub patience: Choice<Option<u64>>,
    /// What a longer run would bring.
    pub longer: &'static str,
}

/// Speakers from which on a voice learns to clone rather than to be one of them.
const MANY_SPEAKERS: usize = 10;
/// Held-out clips that decide something; fewer are one or two sentences' luck.
const ENOUGH_HELD_OUT: usize = 5;
/// Validations of a run, and least and most steps between two: each speaks a sample, and may save a checkpoint.
const VALIDATIONS: u64 = 12;
const BETWEEN_VALIDATIONS: [u64; 2] = [50, 1_000];
/// Hours below which tuning takes smaller steps: between a minute and ten.
const LITTLE_HOURS: f64 = 0.05;

impl Recipe {
    /// The recipe of a voice. The lengths go through the measured ones, as powers of the hours: tuned, 1, 10 and 60
    /// minutes (200, 600, 1,500 steps); many speakers from nothing, 5 and 15 hours (16,000 and 22,000); one speaker from
    /// nothing twice what it took to the lowest loss of held-out speech (600 steps of 9 minutes, 1,250 of 47).
    pub fn voice(facts: &RunFacts, size: Size) -> Self {
        let from_nothing = match facts.speakers >= MANY_SPEAKERS {
            true => 10_000.0 * facts.hours.powf(0.29),
            false => 2_700.0 * facts.hours.powf(0.44),
        };
        let (steps, warmup_steps, longer) = match facts.start {
            Start::Nothing if facts.speakers >= MANY_SPEAKERS => (
                from_nothing,
                500,
                "of 15 hours, clones after 6,000 steps had 77 % of the likeness of recordings, after 22,000 90 %; \
                 more was not tried",
            ),
            Start::Nothing => (
                from_nothing,
                500,
                "of 47 minutes, 3,000 steps gave a word error of 6.0 %, 6,000 one of 5.4 %; --init-from brings more",
            ),
            Start::Weights => (
                from_nothing.min(1_500.0 * facts.hours.powf(0.48)),
                100,
                "of 47 minutes, held-out speech was at its best after 800 steps of 4,000",
            ),
        };
        let steps = rounded(steps);
        Recipe {
            steps: Choice::new(steps, facts),
            learning_rate: learning_rate(facts, size),
            warmup_steps: Choice::new(warmup_steps, "of the runs that were measured"),
            dropout: Choice::new(0.1, "of the runs that were measured; 0.2 was no better"),
            patience: patience(facts, steps),
            longer,
        }
    }

    /// The recipe of a vocoder; `rate` is its learning rate, which has a key of its own.
    pub fn vocoder(facts: &RunFacts, rate: f64) -> Self {
        let steps = match facts.start {
            Start::Nothing => rounded(50_000.0 * facts.hours.powf(0.29).min(1.0)),
            Start::Weights => 1_500,
        };
        Recipe {
            steps: Choice::new(steps, facts),
            learning_rate: Choice::new(rate, "vocoder_learning_rate"),
            warmup_steps: Choice::new(500, "of the runs that were measured"),
            dropout: Choice::new(0.0, "a vocoder has none"),
            patience: patience(facts, steps),
            longer: "nine hours, from weights, gave a mel distance of 0.187 after 2,000 steps, 0.184 after 20,000, 0.181 after 54,000",
        }
    }

    /// Gives a value to every key that was left to the program. A length that was given is kept to: then nothing ends
    /// the run sooner, unless that was asked for.
    pub fn fill(&self, config: &mut Config) {
        let training = &mut config.training;
        let planned = training.steps.is_none() && training.epochs.is_none();
        let steps = training.steps.unwrap_or(self.steps.value);
        let between = *training.val_step.get_or_insert(self.between_validations(steps));
        if planned {
            training.steps = Some(steps);
            training.patience = training.patience.or(self.patience.value.map(|steps| steps.div_ceil(between)));
        }
        training.learning_rate.get_or_insert(self.learning_rate.value);
        // A run that was made short shall reach its rate.
        training.warmup_steps.get_or_insert(self.warmup_steps.value.min(steps / 2));
        config.model.dropout.get_or_insert(self.dropout.value);
    }

    /// Steps between validations; where too little is held out to choose by, the last step alone is validated.
    fn between_validations(&self, steps: u64) -> u64 {
        let [least, most] = BETWEEN_VALIDATIONS;
        if self.patience.value.is_some() { steps.div_ceil(VALIDATIONS).clamp(least, most) } else { steps }
    }

    /// Two lines about a run whose settings are `given`: how it is trained and why, and when it ends.
    pub fn told(&self, given: &Config) -> [String; 2] {
        let mut filled = given.clone();
        self.fill(&mut filled);
        let (usual, why) = (HumanCount(self.steps.value), &self.steps.why);
        let length = match (given.training.steps, given.training.epochs) {
            (None, None) => format!("{usual} steps for {why}"),
            (None, Some(epochs)) => format!("{epochs} epochs, as given; {usual} steps are usual for {why}"),
            (Some(steps), _) => format!("{} steps, as given; {usual} are usual for {why}", HumanCount(steps)),
        };
        let rate = filled.training.peak_rate();
        let dropout = filled.model.dropout_share();
        let augmented = if filled == filled.without_augmentation() { "no" } else { "the given" };
        let end = match (filled.training.patience.filter(|patience| *patience > 0), self.patience.value) {
            (Some(patience), _) => {
                let steps = HumanCount(patience * filled.training.validation_interval());
                format!("it ends sooner if held-out speech gets no better for {steps} steps")
            }
            (None, None) => self.patience.why.clone(),
            (None, Some(_)) => "nothing ends it sooner".into(),
        };
        [
            format!("plan: {length}; learning rate up to {rate:e}, dropout {dropout}, {augmented} augmentation"),
            format!("plan: {end}; a longer run: {}", self.longer),
        ]
    }
}

impl<T> Choice<T> {
    fn new(value: T, why: impl ToString) -> Self {
        Choice { value, why: why.to_string() }
    }
}

/// "0.97 hours of one speaker, from nothing".
impl fmt::Display for RunFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hours < 1.0 {
            true => write!(f, "{:.1} minutes", self.hours * 60.0)?,
            false => write!(f, "{:.1} hours", self.hours)?,
        }
        match self.speakers {
            0 | 1 => f.write_str(" of one speaker")?,
            many => write!(f, " of {} speakers", HumanCount(many as u64))?,
        }
        f.write_str(match self.start {
            Start::Nothing => ", from nothing",
            Start::Weights => ", from another voice's weights",
        })
    }
}

fn learning_rate(facts: &RunFacts, size: Size) -> Choice<f64> {
    match (facts.start, size) {
        (Start::Weights, _) if facts.hours < LITTLE_HOURS => Choice::new(2e-4, "tuned on a minute"),
        (Start::Weights, _) => Choice::new(3e-4, "tuned on ten minutes to an hour"),
        (Start::Nothing, Size::Big) => Choice::new(3e-4, "not measured: large networks take small steps"),
        (Start::Nothing, _) => Choice::new(1e-3, "small and normal networks from nothing"),
    }
}

/// A third of the run: held-out speech was at its best after half of those that were measured.
fn patience(facts: &RunFacts, steps: u64) -> Choice<Option<u64>> {
    match facts.held_out {
        0 => Choice::new(None, "nothing is held out, so nothing ends it sooner"),
        few if few < ENOUGH_HELD_OUT => Choice::new(None, format!("{few} held-out clips are too few to end it sooner")),
        _ => Choice::new(Some(steps.div_ceil(3)), "a third of the run"),
    }
}

/// Two digits are all that the measurements are good for.
fn rounded(steps: f64) -> u64 {
    let unit = 10f64.powf(steps.max(10.0).log10().floor() - 1.0);
    ((steps / unit).round() * unit).max(100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn facts(hours: f64, speakers: usize, start: Start) -> RunFacts {
        RunFacts { hours, speakers, held_out: 20, start }
    }

    fn filled(recipe: &Recipe, text: &str) -> Config {
        let mut config = Config::parse(text, Path::new("a.yaml")).unwrap();
        recipe.fill(&mut config);
        config
    }

    /// docs/results.md: what was measured is what is done again.
    #[test]
    fn lengths_go_through_the_measured_ones() {
        let measured = [
            (1.0 / 60.0, 1, Start::Weights, 200, 2e-4),
            (10.0 / 60.0, 1, Start::Weights, 600, 3e-4),
            (1.0, 1, Start::Weights, 1_500, 3e-4),
            (47.4 / 60.0, 1, Start::Nothing, 2_500, 1e-3),
            (8.8 / 60.0, 1, Start::Nothing, 1_200, 1e-3),
            (5.0, 117, Start::Nothing, 16_000, 1e-3),
            (14.8, 1_797, Start::Nothing, 22_000, 1e-3),
        ];
        for (hours, speakers, start, steps, rate) in measured {
            let recipe = Recipe::voice(&facts(hours, speakers, start), Size::Small);
            let share = recipe.steps.value as f64 / steps as f64;
            assert!((0.93..1.07).contains(&share), "{hours} h: {} steps, measured with {steps}", recipe.steps.value);
            assert_eq!(recipe.learning_rate.value, rate, "{hours} h");
        }
        let vocoder = Recipe::vocoder(&facts(14.8, 1_797, Start::Nothing), 5e-4);
        assert_eq!((vocoder.steps.value, vocoder.learning_rate.value), (50_000, 5e-4));
    }

    #[test]
    fn more_speech_is_never_a_shorter_run_and_weights_never_a_longer_one() {
        for speakers in [1, 500] {
            let steps = |hours, start| Recipe::voice(&facts(hours, speakers, start), Size::Small).steps.value;
            let hours = [0.0, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0];
            for (less, more) in hours.iter().zip(&hours[1..]) {
                assert!(steps(*less, Start::Nothing) <= steps(*more, Start::Nothing));
                assert!(steps(*less, Start::Weights) <= steps(*more, Start::Weights));
                assert!(steps(*more, Start::Weights) <= steps(*more, Start::Nothing));
            }
        }
    }

    #[test]
    fn every_key_is_filled_and_what_was_given_stays() {
        let recipe = Recipe::voice(&facts(1.0, 1, Start::Nothing), Size::Small);
        let Config { model, training, .. } = filled(&recipe, "");
        assert_eq!((training.steps, training.epochs, training.val_step), (Some(2_700), None, Some(225)));
        assert_eq!((training.learning_rate, training.warmup_steps), (Some(1e-3), Some(500)));
        assert_eq!((model.dropout, training.patience), (Some(0.1), Some(4)));

        let text = "training: {steps: 20, learning_rate: 0.5, warmup_steps: 0, val_step: 7}\nmodel: {dropout: 0.0}";
        let Config { model, training, .. } = filled(&recipe, text);
        assert_eq!((training.steps, training.epochs, training.val_step), (Some(20), None, Some(7)));
        assert_eq!((training.learning_rate, training.warmup_steps), (Some(0.5), Some(0)));
        assert_eq!((model.dropout, training.patience), (Some(0.0), None), "a length that was given is kept to");

        let Config { training, .. } = filled(&recipe, "training: {epochs: 3, patience: 2}");
        assert_eq!((training.steps, training.epochs, training.patience), (None, Some(3), Some(2)));
        let Config { training, .. } = filled(&recipe, "training: {patience: 0}");
        assert_eq!((training.steps, training.patience), (Some(2_700), Some(0)), "0 waits for ever");
        let Config { training, .. } = filled(&recipe, "training: {val_step: 400}");
        assert_eq!(training.patience, Some(3), "900 steps are three validations");
        assert_eq!(filled(&recipe, "training: {steps: 40}").training.warmup_steps, Some(20));
    }

    #[test]
    fn filling_twice_is_filling_once() {
        let recipe = Recipe::voice(&facts(0.3, 1, Start::Weights), Size::Tiny);
        let once = filled(&recipe, "training: {seed: 3}");
        let mut twice = once.clone();
        recipe.fill(&mut twice);
        assert_eq!(once, twice);
    }

    #[test]
    fn a_sentence_or_two_decides_nothing() {
        let facts = RunFacts { held_out: 1, ..facts(1.0 / 60.0, 1, Start::Weights) };
        let recipe = Recipe::voice(&facts, Size::Small);
        let training = filled(&recipe, "").training;
        assert_eq!((training.patience, training.val_step), (None, training.steps));
        assert!(recipe.told(&Config::default())[1].contains("1 held-out clips are too few"));
    }

    #[test]
    fn it_says_what_and_why() {
        let recipe = Recipe::voice(&facts(0.5, 1, Start::Weights), Size::Small);
        let [first, second] = recipe.told(&Config::default());
        let why = "plan: 1,100 steps for 30.0 minutes of one speaker, from another voice's weights; learning rate up to 3e-4, \
                   dropout 0.1, no augmentation";
        assert_eq!(first, why);
        let end = "plan: it ends sooner if held-out speech gets no better for 368 steps; a longer run: of 47 minutes";
        assert!(second.starts_with(end), "{second}");
        let given = Config::parse("training: {steps: 9, lr: 2.5e-4}\ndata: {augment_speed: 0.1}", Path::new("a.yaml"));
        let [first, second] = recipe.told(&given.unwrap());
        assert!(first.starts_with("plan: 9 steps, as given; 1,100 are usual for 30.0 minutes"), "{first}");
        assert!(first.ends_with("learning rate up to 2.5e-4, dropout 0.1, the given augmentation"), "{first}");
        assert!(second.starts_with("plan: nothing ends it sooner; "), "{second}");
    }
}
