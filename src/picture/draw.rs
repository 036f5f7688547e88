//! Lines and letters. What falls outside a picture is cut off.

use super::{BACKGROUND, Picture, Rgb};
use font8x8::UnicodeFonts;

/// Width of a letter in pixels; the font's dots are drawn one wide and two high.
pub const GLYPH_WIDTH_PX: i64 = 8;
/// Height of a letter in pixels.
pub const GLYPH_HEIGHT_PX: i64 = 16;

/// Pixels to the right and down from the top left.
type Point = (i64, i64);

impl Picture {
    /// A picture of the background colour.
    pub fn blank(width: u32, height: u32) -> Picture {
        Picture { width, height, rgb: BACKGROUND.repeat(width as usize * height as usize) }
    }

    /// Draws one pixel.
    fn dot(&mut self, (x, y): Point, colour: Rgb) {
        if (0..i64::from(self.width)).contains(&x) && (0..i64::from(self.height)).contains(&y) {
            let at = 3 * (y * i64::from(self.width) + x) as usize;
            self.rgb[at..at + 3].copy_from_slice(&colour);
        }
    }

    /// Draws a line two pixels thick, or one where `thin`.
    pub fn line(&mut self, from: Point, to: Point, colour: Rgb, thin: bool) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
        let along = |from: i64, to: i64, step: i64| from + ((to - from) * step * 2 + steps).div_euclid(steps * 2);
        for step in 0..=steps {
            let (x, y) = (along(from.0, to.0, step), along(from.1, to.1, step));
            let thick = if thin { &[(0, 0)][..] } else { &[(0, 0), (1, 0), (0, 1), (1, 1)] };
            thick.iter().for_each(|(right, down)| self.dot((x + right, y + down), colour));
        }
    }

    /// Writes from left to right; `(x, y)` is the top left of the first letter.
    pub fn text(&mut self, (x, y): Point, text: &str, colour: Rgb) {
        for (index, letter) in text.chars().enumerate() {
            let left = x + index as i64 * GLYPH_WIDTH_PX;
            for (row, bits) in glyph(letter).into_iter().enumerate() {
                for column in (0..8).filter(|column| bits >> column & 1 == 1) {
                    let top = y + 2 * row as i64;
                    [top, top + 1].into_iter().for_each(|y| self.dot((left + column, y), colour));
                }
            }
        }
    }

    /// Draws another picture with its top left at `(x, y)`.
    pub fn paste(&mut self, (x, y): Point, other: &Picture) {
        for (index, pixel) in other.rgb.as_chunks::<3>().0.iter().enumerate() {
            let (right, down) = (index as i64 % i64::from(other.width), index as i64 / i64::from(other.width));
            self.dot((x + right, y + down), *pixel);
        }
    }
}

/// Rows of a letter from the top, the lowest bit left. A question mark for scripts that the font has not.
fn glyph(letter: char) -> [u8; 8] {
    let fonts: [&dyn Fn(char) -> Option<[u8; 8]>; 3] =
        [&|letter| font8x8::BASIC_FONTS.get(letter), &|letter| font8x8::LATIN_FONTS.get(letter), &|letter| {
            font8x8::GREEK_FONTS.get(letter)
        }];
    fonts.iter().find_map(|font| font(letter)).unwrap_or_else(|| glyph('?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: Rgb = [1, 2, 3];

    fn inked(picture: &Picture) -> Vec<(u32, u32)> {
        let pixels = picture.rgb.as_chunks::<3>().0.iter().enumerate().filter(|(_, pixel)| **pixel == INK);
        pixels.map(|(index, _)| (index as u32 % picture.width, index as u32 / picture.width)).collect()
    }

    #[test]
    fn lines_go_from_end_to_end() {
        let mut picture = Picture::blank(5, 5);
        picture.line((0, 4), (4, 0), INK, true);
        assert_eq!(inked(&picture), [(4, 0), (3, 1), (2, 2), (1, 3), (0, 4)]);
        let mut thick = Picture::blank(4, 4);
        thick.line((1, 1), (1, 1), INK, false);
        assert_eq!(inked(&thick), [(1, 1), (2, 1), (1, 2), (2, 2)]);
    }

    #[test]
    fn letters_are_drawn_upright() {
        let mut picture = Picture::blank(8, 16);
        picture.text((0, 0), "L", INK);
        let drawn = inked(&picture);
        let below = drawn.iter().filter(|(_, y)| *y >= 8).count();
        assert!(below > drawn.len() - below, "an L has its bar below");
        let right = drawn.iter().filter(|(x, _)| *x >= 4).map(|(_, y)| *y).min().unwrap();
        assert!(right >= 6, "and it points right: {drawn:?}");
    }

    #[test]
    fn nothing_is_drawn_outside() {
        let mut picture = Picture::blank(3, 3);
        picture.line((-9, -9), (20, 7), INK, false);
        picture.text((-4, -4), "W语", INK);
        picture.paste((2, 2), &Picture::blank(9, 9));
        assert_eq!(picture.rgb.len(), 27);
    }
}
