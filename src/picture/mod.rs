//! Pictures as PNG: matrices such as mel spectrograms and alignments, and what is drawn over and around them.

mod draw;

pub use draw::{GLYPH_HEIGHT_PX, GLYPH_WIDTH_PX};

use std::iter;

const MAX_SIDE_PX: usize = 1200;
/// Height in pixels that rows are stretched towards, so that an 80-band mel can be read.
const ROWS_PX: usize = 320;
const MAX_SCALE: usize = 16;
const SEPARATOR_PX: usize = 4;
const NO_VALUE: Rgb = [128, 128, 128];
const BACKGROUND: Rgb = [255, 255, 255];

/// The magma colour map of Stéfan van der Walt and Nathaniel Smith (CC0), every 17th of its 256 entries. Brightness
/// grows evenly with the value; between entries a straight line stays within 3/255 of the original.
const MAGMA: [Rgb; 16] = [
    [0, 0, 4],
    [11, 9, 36],
    [32, 17, 75],
    [59, 15, 112],
    [87, 21, 126],
    [114, 31, 129],
    [140, 41, 129],
    [168, 50, 125],
    [196, 60, 117],
    [222, 73, 104],
    [241, 96, 93],
    [250, 127, 94],
    [254, 159, 109],
    [254, 191, 132],
    [253, 222, 160],
    [252, 253, 191],
];

/// Red, green and blue, 0 to 255.
pub type Rgb = [u8; 3];

/// A picture in colour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub width: u32,
    pub height: u32,
    /// Pixels from the top left, row by row, three bytes each.
    rgb: Vec<u8>,
}

impl Picture {
    /// Draws a matrix. `values`: `[rows, cols]`, row-major; row 0 is drawn at the bottom, as the lowest mel band or the
    /// first token should be. Colours span the least to the greatest finite value; what is not finite, or missing, is
    /// grey.
    pub fn heatmap(values: &[f32], rows: usize, cols: usize) -> Picture {
        let (y, x) = (Axis::new(rows, ROWS_PX), Axis::new(cols, MAX_SIDE_PX));
        let cells: Vec<f32> = (0..y.cells)
            .flat_map(|row| (0..x.cells).map(move |col| (row, col)))
            .map(|(row, col)| mean(values, y.range(row), x.range(col), cols))
            .collect();
        let colours = colours(&cells, range(&cells));
        let line = |row: usize| colours[row * x.cells..][..x.cells].iter().flat_map(|c| iter::repeat_n(*c, x.scale));
        let rgb = (0..y.cells).rev().flat_map(|row| iter::repeat_n(row, y.scale)).flat_map(line).flatten().collect();
        Picture { width: x.pixels(), height: y.pixels(), rgb }
    }

    /// Draws a matrix, `[rows, cols]`, in a given size in pixels, and with colours that span `low..=high`: pictures
    /// that are to be compared share those.
    pub fn heatmap_of_size(
        values: &[f32],
        cols: usize,
        (width, height): (u32, u32),
        (low, high): (f32, f32),
    ) -> Picture {
        let rows = values.len() / cols.max(1);
        // Each pixel is the mean of the entries that it covers, or the one that covers it.
        let covered = |pixel: u32, pixels: u32, entries: usize| {
            let edge = |pixel: u32| pixel as usize * entries / pixels as usize;
            edge(pixel)..edge(pixel + 1).max(edge(pixel) + 1)
        };
        let cell = |(y, x)| mean(values, covered(height - 1 - y, height, rows), covered(x, width, cols), cols);
        let cells: Vec<f32> = (0..height).flat_map(|y| (0..width).map(move |x| (y, x))).map(cell).collect();
        Picture { width, height, rgb: colours(&cells, (low, high)).into_flattened() }
    }

    /// Pictures one below the other with a line between; narrower ones are filled up on the right.
    pub fn stack(pictures: &[Picture]) -> Picture {
        let width = pictures.iter().map(|p| p.width).max().unwrap_or(1);
        let separator = BACKGROUND.repeat(width as usize * SEPARATOR_PX);
        let rgb = match pictures {
            [] => BACKGROUND.to_vec(),
            some => some.iter().map(|p| p.widened(width)).collect::<Vec<_>>().join(&separator[..]),
        };
        Picture { width, height: (rgb.len() / (3 * width as usize)) as u32, rgb }
    }

    /// The picture as a PNG file.
    pub fn png(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&self.rgb));
        written.expect("memory takes every write, and heatmap and stack fill width × height pixels");
        bytes
    }

    fn widened(&self, width: u32) -> Vec<u8> {
        let fill = BACKGROUND.repeat((width - self.width) as usize);
        self.rgb.chunks_exact(3 * self.width as usize).flat_map(|line| line.iter().chain(&fill)).copied().collect()
    }
}

/// How the entries of one side become pixels: `pool` entries share a cell, and a cell is `scale` pixels long.
struct Axis {
    entries: usize,
    pool: usize,
    cells: usize,
    scale: usize,
}

impl Axis {
    fn new(entries: usize, target_px: usize) -> Self {
        let pool = entries.div_ceil(MAX_SIDE_PX).max(1);
        let cells = entries.div_ceil(pool).max(1);
        Self { entries, pool, cells, scale: (target_px / cells).clamp(1, MAX_SCALE) }
    }

    fn range(&self, cell: usize) -> std::ops::Range<usize> {
        cell * self.pool..((cell + 1) * self.pool).min(self.entries)
    }

    fn pixels(&self) -> u32 {
        (self.cells * self.scale) as u32
    }
}

/// Mean of the finite values of a block; NaN without any.
fn mean(values: &[f32], rows: std::ops::Range<usize>, cols: std::ops::Range<usize>, stride: usize) -> f32 {
    let block = rows.flat_map(|row| cols.clone().map(move |col| row * stride + col));
    let finite = block.filter_map(|i| values.get(i)).filter(|v| v.is_finite());
    let (sum, count) = finite.fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
    sum / count
}

/// Least and greatest finite value.
fn range(cells: &[f32]) -> (f32, f32) {
    let finite = || cells.iter().copied().filter(|v| v.is_finite());
    (finite().fold(f32::INFINITY, f32::min), finite().fold(f32::NEG_INFINITY, f32::max))
}

fn colours(cells: &[f32], (low, high): (f32, f32)) -> Vec<Rgb> {
    let span = if high > low { high - low } else { 1.0 };
    let level = |v: f32| ((v - low) / span).clamp(0.0, 1.0);
    cells.iter().map(|v| if v.is_finite() { magma(level(*v)) } else { NO_VALUE }).collect()
}

/// The colour of a level in 0..=1.
fn magma(level: f32) -> Rgb {
    let position = level * (MAGMA.len() - 1) as f32;
    let below = (position as usize).min(MAGMA.len() - 2);
    let share = position - below as f32;
    let mix = |channel: usize| {
        let (from, to) = (f32::from(MAGMA[below][channel]), f32::from(MAGMA[below + 1][channel]));
        (from + share * (to - from)).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixel(picture: &Picture, x: u32, y: u32) -> Rgb {
        let at = 3 * (y * picture.width + x) as usize;
        picture.rgb[at..at + 3].try_into().unwrap()
    }

    /// Entries 64, 128 and 200 of matplotlib 3's magma table.
    #[test]
    fn colours_follow_the_published_map() {
        for (entry, colour) in [(64, [81, 18, 124]), (128, [183, 55, 121]), (200, [253, 152, 105])] {
            let got = magma(entry as f32 / 255.0);
            assert!(iter::zip(got, colour).all(|(a, b): (u8, u8)| a.abs_diff(b) <= 3), "{entry}: {got:?}");
        }
    }

    #[test]
    fn the_first_row_is_at_the_bottom_and_the_greatest_value_is_brightest() {
        let picture = Picture::heatmap(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2, 3);
        assert_eq!((picture.width, picture.height), (48, 32));
        assert_eq!(pixel(&picture, 0, 31), MAGMA[0]);
        assert_eq!(pixel(&picture, 47, 0), MAGMA[15]);
    }

    #[test]
    fn values_that_are_not_finite_are_grey_and_do_not_stretch_the_scale() {
        let picture = Picture::heatmap(&[0.0, f32::NAN, f32::INFINITY, 1.0], 1, 4);
        let colours: Vec<Rgb> = (0..4).map(|col| pixel(&picture, col * 16, 0)).collect();
        assert_eq!(colours, [MAGMA[0], NO_VALUE, NO_VALUE, MAGMA[15]]);
    }

    #[test]
    fn long_matrices_are_averaged_down_and_odd_ones_drawn() {
        let long = Picture::heatmap(&vec![1.0; 80 * 3001], 80, 3001);
        assert_eq!((long.width, long.height), (1001, 320));
        for (values, rows, cols) in [(&[][..], 0, 0), (&[1.0], 2, 2), (&[f32::NAN], 1, 1), (&[3.0, 3.0], 1, 2)] {
            let picture = Picture::heatmap(values, rows, cols);
            assert_eq!(picture.rgb.len(), 3 * (picture.width * picture.height) as usize);
        }
    }

    #[test]
    fn stacked_pictures_keep_their_pixels() {
        let (wide, narrow) = (Picture::heatmap(&[0.0, 1.0], 1, 2), Picture::heatmap(&[2.0], 1, 1));
        let both = Picture::stack(&[wide, narrow]);
        assert_eq!((both.width, both.height), (32, 16 + 4 + 16));
        assert_eq!(pixel(&both, 31, 15), MAGMA[15]);
        assert_eq!(pixel(&both, 0, 17), BACKGROUND);
        assert_eq!((pixel(&both, 15, 20), pixel(&both, 16, 20)), (MAGMA[0], BACKGROUND));
        assert_eq!(Picture::stack(&[]).rgb.len(), 3);
    }

    #[test]
    fn png_decodes_to_the_same_pixels() {
        let values: Vec<f32> = (0..80 * 50).map(|i| (i as f32 * 0.01).sin()).collect();
        let picture = Picture::heatmap(&values, 80, 50);
        let mut reader = png::Decoder::new(std::io::Cursor::new(picture.png())).read_info().unwrap();
        let mut rgb = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut rgb).unwrap();
        assert_eq!((info.width, info.height, info.color_type), (picture.width, picture.height, png::ColorType::Rgb));
        assert_eq!(rgb, picture.rgb);
    }
}
