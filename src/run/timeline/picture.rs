//! A picture of the stages at work beside each other, as SVG: a few steps from the middle of a run.

use super::{StageSpan, Timeline, Track};
use std::fmt::Write;

/// Steps that are shown: more than the ring is deep, few enough to be read.
const SHOWN_STEPS: usize = 8;
/// Workers that get a row.
const SHOWN_WORKERS: usize = 8;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 190.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 92.0;
const ROW: f64 = 34.0;
const BAR: f64 = 24.0;
const FOOT: f64 = 62.0;

/// Colours of batches in turn, so that one can be followed down the rows. Told apart also by the colour-blind (Okabe
/// and Ito, 2008).
const BATCHES: [&str; 4] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7"];
const IDLE: &str = "#d32f2f";
const WAIT: &str = "#bdbdbd";

impl Timeline {
    /// `None` where there is nothing to show. `caption`: one line below the title.
    pub fn svg(&self, caption: &str) -> Option<String> {
        let (from_ms, to_ms) = self.stretch()?;
        let rows: Vec<Vec<Track>> = self.rows();
        let height = TOP + rows.len() as f64 * ROW + FOOT;
        let x = |ms: f64| LEFT + (ms - from_ms) / (to_ms - from_ms) * (WIDTH - LEFT - RIGHT);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"system-ui, sans-serif\" font-size=\"14\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"20\" y=\"32\" font-size=\"20\" font-weight=\"600\">Where the time goes: {:.0} ms of training</text>\n\
             <text x=\"20\" y=\"56\" fill=\"#555\">{}</text>\n",
            to_ms - from_ms,
            escape(caption)
        );
        let bottom = TOP + rows.len() as f64 * ROW;
        for tick in ticks(from_ms, to_ms) {
            let at = x(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\" stroke=\"#e8e8e8\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"12\" fill=\"#777\">{} ms</text>",
                TOP - 8.0,
                short(tick - from_ms)
            );
        }
        for (index, tracks) in rows.iter().enumerate() {
            let top = TOP + index as f64 * ROW;
            let middle = top + ROW / 2.0;
            let _ = writeln!(
                svg,
                "<line x1=\"20\" y1=\"{top}\" x2=\"{:.0}\" y2=\"{top}\" stroke=\"#f0f0f0\"/>\
                 <text x=\"20\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                middle + 5.0,
                escape(&self.label(tracks[0]))
            );
            let inside = |span: &&StageSpan| span.start_ms < to_ms && span.start_ms + span.ms > from_ms;
            for span in self.spans.iter().filter(|span| tracks.contains(&span.track)).filter(inside) {
                let (left, right) = (x(span.start_ms.max(from_ms)), x((span.start_ms + span.ms).min(to_ms)));
                bar(&mut svg, span, left, (right - left).max(0.8), middle);
            }
        }
        legend(&mut svg, bottom + 34.0);
        svg.push_str("</svg>\n");
        Some(svg)
    }

    /// Milliseconds that are shown: from the start of a step in the middle to the end of one some steps later.
    fn stretch(&self) -> Option<(f64, f64)> {
        let steps: Vec<&StageSpan> = self.spans.iter().filter(|span| span.track == Track::Step).collect();
        let shown = steps.len().min(SHOWN_STEPS);
        let first = (steps.len() - shown) / 2;
        let (start, end) = (steps.get(first)?, steps.get(first + shown.checked_sub(1)?)?);
        Some((start.start_ms, end.start_ms + end.ms))
    }

    /// Idle time stands in the row of the step, whose place it takes.
    fn rows(&self) -> Vec<Vec<Track>> {
        let shown = |track: &Track| !matches!(track, Track::Worker(number) if *number >= SHOWN_WORKERS);
        let tracks: Vec<Track> =
            self.tracks().into_iter().filter(shown).filter(|track| *track != Track::Idle).collect();
        tracks
            .into_iter()
            .map(|track| if track == Track::Step { vec![Track::Step, Track::Idle] } else { vec![track] })
            .collect()
    }

    fn label(&self, track: Track) -> String {
        match track {
            Track::Worker(number) => format!("worker {}", number + 1),
            Track::Wait => "feed waits".into(),
            Track::Copy => format!("copy to {}", self.devices[0]),
            Track::Features => format!("features, {}", self.devices[0]),
            Track::Transfer => "transfer".into(),
            Track::Step | Track::Idle => format!("training, {}", self.devices[1]),
        }
    }
}

fn bar(svg: &mut String, span: &StageSpan, left: f64, width: f64, middle: f64) {
    let (top, number) = (middle - BAR / 2.0, span.step + 1);
    let fill = match span.track {
        Track::Idle => IDLE,
        Track::Wait => WAIT,
        _ => BATCHES[span.step % BATCHES.len()],
    };
    let _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{fill}\">\
         <title>{}, batch {number}: {:.2} ms</title></rect>",
        escape(&span.track.title()),
        span.ms
    );
    let text = match span.track {
        Track::Wait => String::new(),
        Track::Idle if width > 70.0 => format!("idle {} ms", short(span.ms)),
        Track::Idle => String::new(),
        _ if width > 84.0 => format!("{number} · {} ms", short(span.ms)),
        _ if width > 18.0 => number.to_string(),
        _ => String::new(),
    };
    if !text.is_empty() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"12\" fill=\"white\">{text}</text>",
            left + width / 2.0,
            middle + 4.0
        );
    }
}

fn legend(svg: &mut String, y: f64) {
    let mut x = 20.0;
    let mut entry = |svg: &mut String, fills: &[&str], text: &str, width: f64| {
        for fill in fills {
            let _ = write!(
                svg,
                "<rect x=\"{x}\" y=\"{:.1}\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{fill}\"/>",
                y - 11.0
            );
            x += 16.0;
        }
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"13\" fill=\"#555\">{text}</text>", x + 4.0);
        x += width;
    };
    entry(svg, &BATCHES, "a batch keeps its number and colour on its way down", 376.0);
    entry(svg, &[WAIT], "waits for the stage above", 190.0);
    entry(svg, &[IDLE], "the model device stands idle", 300.0);
}

/// Some round moments, counted from the left edge.
fn ticks(from_ms: f64, to_ms: f64) -> Vec<f64> {
    let rough = (to_ms - from_ms) / 8.0;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    (0..).map(|index| from_ms + f64::from(index) * step).take_while(|at| *at <= to_ms).take(20).collect()
}

/// Three digits that say something.
fn short(ms: f64) -> String {
    match ms {
        ms if ms >= 100.0 || ms == ms.round() => format!("{ms:.0}"),
        ms if ms >= 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.2}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn a_picture_has_a_row_for_each_stage_and_bars_inside_its_frame() {
        let svg = sample().svg("a < b & c").unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt; b &amp; c"));
        assert!(svg.contains("training, GPU 0") && svg.contains("worker 2") && svg.contains(IDLE));
        let number = |text: &str, name: &str| -> f64 {
            let (_, rest) = text.split_once(&format!(" {name}=\"")).unwrap();
            rest.split('"').next().unwrap().parse().unwrap()
        };
        let bars: Vec<&str> = svg.lines().filter(|line| line.contains("<title>")).collect();
        assert!(bars.len() > SHOWN_STEPS * 3);
        for line in bars {
            let (x, width) = (number(line, "x"), number(line, "width"));
            assert!(x >= LEFT - 0.1 && x + width <= WIDTH - RIGHT + 1.0, "{line}");
        }
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn nothing_measured_is_no_picture() {
        assert_eq!(Timeline::default().svg(""), None);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(ticks(3.0, 83.0), [3.0, 13.0, 23.0, 33.0, 43.0, 53.0, 63.0, 73.0, 83.0]);
        for length in [0.7, 9.0, 130.0, 5000.0] {
            assert!((4..=12).contains(&ticks(0.0, length).len()), "{length}");
        }
    }
}
