// What all pages share: asking the server, and pictures of sound.

const $ = id => document.getElementById(id);
const seconds = s => s < 60 ? s.toFixed(1) + " s" : Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";

// ---- asking the server ----

let token = sessionStorage.getItem("token") || "";

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token) headers.Authorization = "Bearer " + token;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  let message = response.status + " " + response.statusText;
  try { message = (await response.json()).error.message; } catch { /* an answer of a proxy, say */ }
  if (response.status === 401) $("locked").hidden = false;
  if (response.status === 429) message = "The server is busy: " + message;
  throw new Error(message);
}

const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text });


// ---- pictures ----

const SIZE = 1024, HOP = 256, BANDS = 80;
// Dark to bright, even in lightness.
const SCALE = [[10, 7, 30], [59, 15, 112], [140, 41, 129], [222, 73, 104], [254, 159, 109], [252, 253, 191]];

class Picture {
  constructor(rate, wave, mel) {
    this.wave = wave;
    this.mel = mel;
    this.tail = new Float32Array(0);
    this.columns = [];  // one a hop: lowest and highest sample, and the log of each mel band
    this.window = Float32Array.from({ length: SIZE }, (_, i) => 0.5 - 0.5 * Math.cos(2 * Math.PI * i / SIZE));
    this.filters = Picture.filters(rate);
    this.wanted = false;
  }

  /** For each band its first bin and the weights from there: triangles, even on the mel scale. */
  static filters(rate) {
    const mel = hz => 2595 * Math.log10(1 + hz / 700), hz = mel => 700 * (10 ** (mel / 2595) - 1);
    const edge = Array.from({ length: BANDS + 2 }, (_, i) => hz(mel(rate / 2) * i / (BANDS + 1)) * SIZE / rate);
    return Array.from({ length: BANDS }, (_, band) => {
      const [low, middle, high] = edge.slice(band, band + 3);
      const first = Math.max(0, Math.floor(low)), last = Math.min(SIZE / 2, Math.ceil(high));
      const weights = [];
      for (let bin = first; bin <= last; bin++)
        weights.push(Math.max(0, Math.min((bin - low) / (middle - low), (high - bin) / (high - middle))));
      if (!weights.some(weight => weight > 0)) weights[Math.round(middle) - first] = 1;
      return { first, weights: Float32Array.from(weights, weight => weight || 0) };
    });
  }

  push(piece) {
    const joined = new Float32Array(this.tail.length + piece.length);
    joined.set(this.tail);
    joined.set(piece, this.tail.length);
    let at = 0;
    for (; at + SIZE <= joined.length; at += HOP) this.columns.push(this.column(joined.subarray(at, at + SIZE)));
    this.tail = joined.slice(at);
    if (!this.wanted) {
      this.wanted = true;
      requestAnimationFrame(() => { this.wanted = false; this.draw(); });
    }
  }

  column(samples) {
    const real = samples.map((sample, i) => sample * this.window[i]), imaginary = new Float32Array(SIZE);
    transform(real, imaginary);
    const bands = new Float32Array(BANDS);
    this.filters.forEach(({ first, weights }, band) => {
      let sum = 0;
      for (let i = 0; i < weights.length; i++) sum += weights[i] * Math.hypot(real[first + i], imaginary[first + i]);
      bands[band] = Math.log10(Math.max(sum, 1e-5));
    });
    let low = 0, high = 0;
    for (let i = 0; i < HOP; i++) { low = Math.min(low, samples[i]); high = Math.max(high, samples[i]); }
    return { low, high, bands };
  }

  draw() {
    if (!this.columns.length) return;
    if (this.wave) this.drawWave(this.wave);
    this.drawMel(this.mel);
  }

  drawWave(canvas) {
    const ratio = devicePixelRatio || 1, width = canvas.clientWidth * ratio, height = canvas.clientHeight * ratio;
    Object.assign(canvas, { width, height });
    const pen = canvas.getContext("2d"), many = this.columns.length;
    pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--wave");
    for (let x = 0; x < width; x++) {
      let low = 0, high = 0;
      const from = Math.floor(x * many / width), to = Math.max(from + 1, Math.floor((x + 1) * many / width));
      for (let i = from; i < to; i++) { low = Math.min(low, this.columns[i].low); high = Math.max(high, this.columns[i].high); }
      pen.fillRect(x, height / 2 * (1 - high), 1, Math.max(ratio, height / 2 * (high - low)));
    }
  }

  drawMel(canvas) {
    const width = Math.max(1, Math.min(this.columns.length, 2000)), many = this.columns.length;
    Object.assign(canvas, { width, height: BANDS });
    const pen = canvas.getContext("2d"), image = pen.createImageData(width, BANDS);
    let loudest = -5;
    for (const column of this.columns) for (const value of column.bands) loudest = Math.max(loudest, value);
    for (let x = 0; x < width; x++) {
      const { bands } = this.columns[Math.floor(x * many / width)];
      for (let band = 0; band < BANDS; band++)
        image.data.set(colour(1 + (bands[band] - loudest) / 4), 4 * ((BANDS - 1 - band) * width + x));
    }
    pen.putImageData(image, 0, 0);
  }
}

function colour(value) {
  const at = Math.max(0, Math.min(0.9999, value)) * (SCALE.length - 1), low = Math.floor(at);
  return [0, 1, 2].map(i => SCALE[low][i] + (SCALE[low + 1][i] - SCALE[low][i]) * (at - low)).concat(255);
}

/** Fourier transform in place, radix 2. */
function transform(real, imaginary) {
  const size = real.length;
  for (let i = 1, j = 0; i < size; i++) {
    let bit = size >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [real[i], real[j]] = [real[j], real[i]];
      [imaginary[i], imaginary[j]] = [imaginary[j], imaginary[i]];
    }
  }
  for (let length = 2; length <= size; length <<= 1) {
    const half = length / 2;
    for (let k = 0; k < half; k++) {
      const cos = Math.cos(2 * Math.PI * k / length), sin = -Math.sin(2 * Math.PI * k / length);
      for (let i = k; i < size; i += length) {
        const j = i + half;
        const re = real[j] * cos - imaginary[j] * sin, im = real[j] * sin + imaginary[j] * cos;
        real[j] = real[i] - re; imaginary[j] = imaginary[i] - im;
        real[i] += re; imaginary[i] += im;
      }
    }
  }
}

