//! The phases that harmonics of a pitch have in a spectrum. A network that sees some tenths of a second cannot count the
//! periods of a voice, and pulses that follow it smear; the sum of the pitch over time can. The generator says how far
//! each bin is from its harmonic, which changes as slowly as the vocal tract does.

use crate::model::graph::GraphWriter;
use host::config::Config;
use host::onnx::{Kind as OnnxKind, Value};
use std::f64::consts::{PI, TAU};
use tch::{Device, Kind, Tensor};

/// Added to the square of what two harmonics leave of each other, so that nothing jumps where they cancel out.
const LEAST_SQUARE: f64 = 1e-2;

/// The voice's periods, counted from frame to frame, and the phases of bins that follow.
pub struct Harmonics {
    /// `[bins]`
    bin_hz: Tensor,
    /// `[bins]`: windows are centred on their frames and transformed from their starts, so every second bin is turned by half.
    turned: Tensor,
    hop_seconds: f64,
}

impl Harmonics {
    pub fn new(config: &Config, device: Device) -> Self {
        let (model, rate_hz) = (&config.model, f64::from(config.data.sample_rate));
        let bins = Tensor::arange(model.n_fft / 2 + 1, (Kind::Float, device));
        Harmonics {
            bin_hz: &bins * (rate_hz / model.n_fft as f64),
            turned: bins.remainder(2) * PI,
            hop_seconds: model.hop_length as f64 / rate_hz,
        }
    }

    /// Periods since the start, at the centre of each frame, less whole ones: `[batch, frames]`, Hz → f32 from 0 to 1. Frames
    /// where `mask` (`[frames, 1]`) is 0 lie between utterances, each of which starts anew.
    pub fn periods(&self, hz: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let own = hz.to_kind(Kind::Double) * self.hop_seconds;
        let through = own.cumsum(-1, Kind::Double);
        let since = match mask {
            None => through,
            Some(mask) => {
                let gaps = (-mask.to_kind(Kind::Double) + 1.0).view([1, -1]);
                &through - (&through * gaps).cummax(-1).0
            }
        };
        (since - own * 0.5).frac().to_kind(Kind::Float)
    }

    /// Turns a spectrum of the phases `own` (`[batch, frames, bins]`) by those of the harmonics on either side of each bin,
    /// the nearer the more: real and imaginary parts of unit size, but where the two harmonics cancel out. `hz` and `periods`:
    /// `[batch, frames]`.
    pub fn turn(&self, own: &Tensor, hz: &Tensor, periods: &Tensor) -> [Tensor; 2] {
        let (hz, periods) = (hz.unsqueeze(-1), periods.unsqueeze(-1));
        let place = &self.bin_hz / hz;
        let below = place.floor();
        let above = place - &below;
        let phase = own + (below * &periods).frac() * TAU + &self.turned;
        let next = periods * TAU;
        let (x, y) = (&above * next.cos() - &above + 1.0, above * next.sin());
        let size = (x.square() + y.square() + LEAST_SQUARE).rsqrt();
        let (cos, sin) = (phase.cos() * &size, phase.sin() * size);
        [&cos * &x - &sin * &y, cos * y + sin * x]
    }

    /// Both in a graph: phases `[frames, bins]` and Hz `[frames, 1]`.
    pub fn graph(&self, own: &Value, hz: &Value, g: &mut GraphWriter) -> [Value; 2] {
        let double = g.cast(hz, OnnxKind::F64);
        let (hop_seconds, half, axis) = (g.double(self.hop_seconds), g.double(0.5), g.int(0));
        let passed = g.mul(&double, &hop_seconds);
        let through = g.op("CumSum", &[&passed, &axis], vec![]);
        let half = g.mul(&passed, &half);
        let since = g.sub(&through, &half);
        let periods = fraction(&since, g);
        let periods = g.cast(&periods, OnnxKind::F32);

        let bin_hz = g.values("harmonics.bin_hz", &self.bin_hz.unsqueeze(0));
        let place = g.op("Div", &[&bin_hz, hz], vec![]);
        let below = g.op("Floor", &[&place], vec![]);
        let above = g.sub(&place, &below);
        let passed = g.mul(&below, &periods);
        let passed = fraction(&passed, g);
        let (tau, turned) = (g.float(TAU), g.values("harmonics.turned", &self.turned.unsqueeze(0)));
        let passed = g.mul(&passed, &tau);
        let phase = g.add(own, &passed);
        let phase = g.add(&phase, &turned);
        let next = g.mul(&periods, &tau);
        let [next_x, y] = ["Cos", "Sin"].map(|of| {
            let part = g.op(of, &[&next], vec![]);
            g.mul(&above, &part)
        });
        let one = g.float(1.0);
        let rest = g.sub(&one, &above);
        let x = g.add(&next_x, &rest);
        let [square_x, square_y] = [&x, &y].map(|part| g.mul(part, part));
        let square = g.add(&square_x, &square_y);
        let least = g.float(LEAST_SQUARE);
        let square = g.add(&square, &least);
        let size = g.op("Sqrt", &[&square], vec![]);
        let [cos, sin] = ["Cos", "Sin"].map(|of| {
            let part = g.op(of, &[&phase], vec![]);
            g.op("Div", &[&part, &size], vec![])
        });
        let [cos_x, sin_y, cos_y, sin_x] =
            [(&cos, &x), (&sin, &y), (&cos, &y), (&sin, &x)].map(|(part, of)| g.mul(part, of));
        [g.sub(&cos_x, &sin_y), g.add(&cos_y, &sin_x)]
    }
}

fn fraction(x: &Value, g: &mut GraphWriter) -> Value {
    let whole = g.op("Floor", &[x], vec![]);
    g.sub(x, &whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::stft;

    fn harmonics() -> Harmonics {
        Harmonics::new(&Config::default(), Device::Cpu)
    }

    /// Truth: the transform of a voice of ten harmonics whose pitch glides.
    #[test]
    fn phases_are_those_of_a_spectrum() {
        let config = Config::default();
        let (rate_hz, hop) = (f64::from(config.data.sample_rate), config.model.hop_length);
        let frames = 40;
        let samples = Tensor::arange(frames * hop, (Kind::Double, Device::Cpu));
        let hz = &samples * (30.0 / (frames * hop) as f64) + 180.0;
        let turns = (hz.cumsum(0, Kind::Double) - &hz * 0.5) / rate_hz;
        let wave: Tensor = (1..=10).map(|number| (&turns * (f64::from(number) * TAU)).cos()).sum();
        let window = Tensor::hann_window(config.model.n_fft, (Kind::Float, Device::Cpu));
        let spectrum = stft(&wave.to_kind(Kind::Float), &window, hop).narrow(0, 0, frames);

        let centres = Tensor::arange(frames, (Kind::Int64, Device::Cpu)) * hop;
        let at_centres = hz.index_select(0, &centres).to_kind(Kind::Float).unsqueeze(0);
        let harmonics = harmonics();
        // The first frame's centre is the start of the sound, half a hop before what `periods` counts from.
        let periods = harmonics.periods(&at_centres, None);
        let shift = &periods - turns.index_select(0, &centres).to_kind(Kind::Float);
        let periods = periods - shift.get(0).get(0);
        let none = Tensor::zeros([1, frames, config.model.n_fft / 2 + 1], (Kind::Float, Device::Cpu));
        let [real, imaginary] = harmonics.turn(&none, &at_centres, &periods).map(|part| part.squeeze_dim(0));
        let phases = imaginary.atan2(&real);
        for number in [1, 2, 5, 10] {
            for frame in [4, 20, 35] {
                let pitch = at_centres.double_value(&[0, frame]);
                let bin = (number as f64 * pitch * config.model.n_fft as f64 / rate_hz).round() as i64;
                let found = spectrum.get(frame).get(bin).angle().double_value(&[]);
                let off = (phases.double_value(&[frame, bin]) - found).rem_euclid(TAU);
                let off = off.min(TAU - off);
                assert!(off < 0.35, "harmonic {number}, frame {frame}: off by {off:.2} rad");
            }
        }
    }

    /// However many utterances lie in front of one, its phases are those that it has alone.
    #[test]
    fn utterances_start_anew() {
        let harmonics = harmonics();
        let hz = Tensor::rand([1, 50], (Kind::Float, Device::Cpu)) * 200.0 + 80.0;
        let mask = Tensor::ones([50, 1], (Kind::Float, Device::Cpu));
        let _ = mask.narrow(0, 20, 4).fill_(0.0);
        let together = harmonics.periods(&hz, Some(&mask));
        for (start, len) in [(0, 20), (24, 26)] {
            let alone = harmonics.periods(&hz.narrow(1, start, len), None);
            let off = (together.narrow(1, start, len) - alone).abs();
            assert!(off.min_other(&(-&off + 1.0)).max().double_value(&[]) < 1e-6);
        }
    }

    /// Thousands of periods later, a phase is as exact as at the start: an hour of speech at once.
    #[test]
    fn periods_do_not_drift() {
        let harmonics = harmonics();
        let frames = 310_000;
        let hz = Tensor::full([1, frames], 211.7, (Kind::Float, Device::Cpu));
        let periods = harmonics.periods(&hz, None).double_value(&[0, frames - 1]);
        let wanted = (f64::from(211.7f32) * harmonics.hop_seconds * (frames as f64 - 0.5)).fract();
        assert!((periods - wanted).abs() < 1e-4, "{periods} {wanted}");
    }
}
