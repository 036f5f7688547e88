//! A picture of one sentence: both mel spectrograms, both pitch contours, and how the frames were paired.

use super::compare::{AnalysedSpeech, SpeechComparison, seconds};
use super::evaluation::EvaluatedClip;
use crate::picture::{GLYPH_HEIGHT_PX, GLYPH_WIDTH_PX, Picture, Rgb};
use host::audio::cepstra::{N_MELS, distortion_db};

const INK: Rgb = [30, 30, 30];
const FAINT: Rgb = [205, 205, 205];
const RECORDED: Rgb = [30, 90, 200];
const SPOKEN: Rgb = [225, 105, 0];
const PATH: Rgb = [0, 225, 225];
const WIDTH_PX: i64 = 1100;
const LEFT_PX: i64 = 64;
const MEL_PX: i64 = 170;
const PITCH_PX: i64 = 200;
const PATH_PX: i64 = 340;
const GAP_PX: i64 = 44;
/// Levels of a mel band, in nepers: from the noise of a room to a loud vowel.
const MEL_RANGE: (f32, f32) = (-9.0, 1.0);
const DISTORTION_RANGE_DB: (f32, f32) = (0.0, 20.0);
const PITCHES_HZ: [f64; 8] = [60.0, 80.0, 100.0, 150.0, 200.0, 300.0, 400.0, 600.0];

/// `flaw`: what the sentence is bad at.
pub fn draw(clip: &EvaluatedClip, flaw: &str, comparison: &SpeechComparison) -> Picture {
    let title = lines_of(clip, flaw);
    let top = 8 + title.len() as i64 * (GLYPH_HEIGHT_PX + 4) + 24;
    let height = top + 2 * (MEL_PX + GAP_PX) + PITCH_PX + GAP_PX + PATH_PX + GAP_PX;
    let mut drawn =
        ClipPicture { picture: Picture::blank(WIDTH_PX as u32, height as u32), scale_px: scale(comparison) };
    for (line, text) in title.iter().enumerate() {
        drawn.picture.text((8, 8 + line as i64 * (GLYPH_HEIGHT_PX + 4)), text, INK);
    }
    let mut y = top;
    for (name, heard, colour) in [("recorded", &comparison.recorded, RECORDED), ("spoken", &comparison.spoken, SPOKEN)]
    {
        drawn.mel(y, name, heard, colour);
        y += MEL_PX + GAP_PX;
    }
    drawn.pitches(y, comparison);
    drawn.path(y + PITCH_PX + GAP_PX, comparison);
    drawn.picture
}

fn lines_of(clip: &EvaluatedClip, flaw: &str) -> Vec<String> {
    let figures = &clip.figures;
    let pitch =
        figures.log_f0_rmse_cents.map_or("no pitch in common".into(), |cents| format!("log-F0 error {cents:.0} cents"));
    let measured = format!(
        "distortion {:.2} dB, {pitch}, voicing error {:.1} %, {:.2} times as long",
        figures.mel_cepstral_distortion_db,
        100.0 * figures.voicing_error,
        figures.duration_ratio
    );
    let mut lines = vec![format!("{}: among the worst by {flaw}", clip.id), measured, format!("text   {}", clip.text)];
    if let Some(heard) = &clip.heard {
        lines.push(format!("heard  {}", heard.spoken.text));
    }
    let room = ((WIDTH_PX - 16) / GLYPH_WIDTH_PX) as usize;
    lines.into_iter().map(|line| line.chars().take(room).collect()).collect()
}

/// Pixels of a second, the same in all panels: the longer of both fits.
fn scale(comparison: &SpeechComparison) -> f64 {
    let longest = comparison.recorded.seconds.max(comparison.spoken.seconds).max(0.1);
    (WIDTH_PX - LEFT_PX - 24) as f64 / longest
}

struct ClipPicture {
    picture: Picture,
    scale_px: f64,
}

impl ClipPicture {
    fn x(&self, frame: usize) -> i64 {
        LEFT_PX + self.width(frame)
    }

    fn width(&self, frames: usize) -> i64 {
        (seconds(frames) * self.scale_px).round() as i64
    }

    fn mel(&mut self, y: i64, name: &str, heard: &AnalysedSpeech, colour: Rgb) {
        let frames = heard.frames.cepstra.len();
        let bands: Vec<f32> = (0..N_MELS)
            .flat_map(|band| (0..frames).map(move |frame| heard.frames.log_mel[frame * N_MELS + band]))
            .collect();
        let size = (self.width(frames).max(1) as u32, MEL_PX as u32);
        let mel = Picture::heatmap_of_size(&bands, frames, size, MEL_RANGE);
        self.picture.paste((LEFT_PX, y), &mel);
        self.heading(y, &format!("{name}, {:.2} s", heard.seconds), colour);
        self.label(y + MEL_PX, "0");
        self.label(y + GLYPH_HEIGHT_PX / 2, &format!("{} kHz", heard.frames.top_hz / 1000.0));
        self.seconds(y + MEL_PX, heard.seconds);
    }

    /// The spoken contour lies where the recording says the same.
    fn pitches(&mut self, y: i64, comparison: &SpeechComparison) {
        let SpeechComparison { recorded, spoken, path } = comparison;
        self.heading(y, "pitch (Hz): recorded", RECORDED);
        self.picture.text(
            (LEFT_PX + 21 * GLYPH_WIDTH_PX, y - GLYPH_HEIGHT_PX - 3),
            "spoken, moved in time to match",
            SPOKEN,
        );
        let height = |hz: f64| y + PITCH_PX - (PITCH_PX as f64 * (hz / 60.0).log2() / 10f64.log2()).round() as i64;
        for hz in PITCHES_HZ {
            self.picture.line((LEFT_PX, height(hz)), (WIDTH_PX - 24, height(hz)), FAINT, true);
            self.label(height(hz) + GLYPH_HEIGHT_PX / 2, &format!("{hz}"));
        }
        let recorded: Vec<_> = recorded.pitch.iter().copied().enumerate().collect();
        let spoken: Vec<_> = path.iter().map(|&(row, col)| (row, spoken.pitch[col])).collect();
        for (contour, colour) in [(recorded, RECORDED), (spoken, SPOKEN)] {
            for pair in contour.windows(2) {
                if let [(from, Some(low)), (to, Some(high))] = *pair {
                    self.picture.line((self.x(from), height(low)), (self.x(to), height(high)), colour, false);
                }
            }
        }
        self.seconds(y + PITCH_PX, comparison.recorded.seconds);
    }

    /// Bright where frames differ; the path goes along the dark valley.
    fn path(&mut self, y: i64, comparison: &SpeechComparison) {
        let (a, b) = (&comparison.recorded.frames.cepstra, &comparison.spoken.frames.cepstra);
        let costs: Vec<f32> = b.iter().flat_map(|b| a.iter().map(move |a| distortion_db(a, b) as f32)).collect();
        let size = (self.width(a.len()).max(1) as u32, PATH_PX as u32);
        self.picture.paste((LEFT_PX, y), &Picture::heatmap_of_size(&costs, a.len(), size, DISTORTION_RANGE_DB));
        self.heading(y, "frames that were paired: recorded to the right, spoken upwards", INK);
        let place = |drawn: &ClipPicture, (row, col): (usize, usize)| {
            (drawn.x(row), y + PATH_PX - 1 - (PATH_PX * col as i64) / b.len() as i64)
        };
        for pair in comparison.path.windows(2) {
            self.picture.line(place(self, pair[0]), place(self, pair[1]), PATH, false);
        }
        self.label(y + PATH_PX, "0 s");
        self.label(y + GLYPH_HEIGHT_PX / 2, &format!("{:.1} s", comparison.spoken.seconds));
        self.seconds(y + PATH_PX, comparison.recorded.seconds);
    }

    fn heading(&mut self, y: i64, text: &str, colour: Rgb) {
        self.picture.text((LEFT_PX, y - GLYPH_HEIGHT_PX - 3), text, colour);
    }

    /// Left of a panel, its foot at `y`.
    fn label(&mut self, y: i64, text: &str) {
        let left = LEFT_PX - 8 - text.chars().count() as i64 * GLYPH_WIDTH_PX;
        self.picture.text((left, y - GLYPH_HEIGHT_PX), text, INK);
    }

    fn seconds(&mut self, y: i64, end: f64) {
        let step = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0].into_iter().find(|step| step * self.scale_px > 60.0);
        let step = step.unwrap_or(60.0);
        for tick in 0..=(end / step) as i64 {
            let at = tick as f64 * step;
            let x = LEFT_PX + (at * self.scale_px).round() as i64;
            self.picture.line((x, y), (x, y + 4), INK, true);
            let text = format!("{}", (at * 10.0).round() / 10.0);
            self.picture.text((x - text.len() as i64 * GLYPH_WIDTH_PX / 2, y + 6), &text, INK);
        }
    }
}
