// ---- curves on canvas ----
// Own code rather than a library: curves come thinned with the least and the greatest of each point, which is drawn as a
// band; and every chart can be read and zoomed by the keyboard, and read out.

const COLOURS = {
  light: ["#5146d8", "#d9480f", "#18794e", "#b5179e", "#0b7285", "#9a6700", "#c92a2a", "#495057"],
  dark: ["#a59eff", "#ffa94d", "#6fd6a3", "#f783d6", "#66d9e8", "#f0c36b", "#ff8787", "#ced4da"],
};
const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;
const colourOf = index => { const list = COLOURS[isDark() ? "dark" : "light"]; return list[index % list.length]; };
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** An element with attributes, a class, and children; text is always text. */
function el(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name === "class") made.className = value;
    else if (name === "text") made.textContent = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

/** A number for people: about four digits. */
function figure(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

/** A canvas of as many points as the screen has, cleared; its pen counts in CSS pixels. */
function pen(canvas) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return { pen, width, height };
}

/** Round values between two, about so many. */
function ticks(low, high, about) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / about, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find(s => s * power >= raw) * power;
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

function logTicks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const digit of high / low > 50 ? [1] : [1, 2, 5]) {
      const at = digit * 10 ** power;
      if (at >= low && at <= high) found.push(at);
    }
  return found.length ? found : [low, high];
}

/** A moving average that begins without bias; gaps between points count by their steps. */
function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0, norm = 0;
  return values.map(value => {
    sum = weight * sum + (1 - weight) * value;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
}

const LEFT = 52, RIGHT = 8, TOP = 8, BOTTOM = 20;

class Chart {
  /** `view`: what all charts share: range, smoothing, log scale, and what to call when the range changes. */
  constructor(title, view, onRemove) {
    this.title = title;
    this.view = view;
    this.lines = [];
    this.marks = [];
    this.at = null;  // step under the cursor
    this.drag = null;
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-roledescription": t("chart") });
    this.legend = el("div", { class: "legend", role: "status", "aria-live": "off" });
    const remove = onRemove ? el("button", { class: "gone", type: "button", "aria-label": t("Remove"), text: "×", onclick: onRemove }) : null;
    this.root = el("figure", { class: "chart" }, el("div", { class: "head" }, el("h3", { text: title }), remove), this.canvas, this.legend);
    const canvas = this.canvas;
    canvas.addEventListener("pointermove", event => this.moved(event));
    canvas.addEventListener("pointerleave", () => { if (!this.drag) this.point(null); });
    canvas.addEventListener("pointerdown", event => { if (event.pointerType === "mouse") { this.drag = { from: event.offsetX, to: event.offsetX }; canvas.setPointerCapture(event.pointerId); } });
    canvas.addEventListener("pointerup", () => this.dropped());
    canvas.addEventListener("dblclick", () => this.view.setRange(null));
    canvas.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  set(lines, marks) {
    this.lines = lines;
    this.marks = marks;
    this.draw();
  }

  moved(event) {
    if (this.drag) { this.drag.to = event.offsetX; return this.draw(); }
    this.point(this.stepAt(event.offsetX));
  }

  dropped() {
    const drag = this.drag;
    this.drag = null;
    if (drag && Math.abs(drag.to - drag.from) > 6) {
      const [a, b] = [this.stepAt(drag.from), this.stepAt(drag.to)].sort((a, b) => a - b);
      this.view.setRange([Math.floor(a), Math.ceil(b)]);
    } else this.draw();
  }

  stepAt(x) {
    const [low, high] = this.x ?? [0, 1];
    return low + (x - LEFT) / Math.max(1, this.canvas.clientWidth - LEFT - RIGHT) * (high - low);
  }

  /** Moves the cursor of all charts. */
  point(step) { this.view.point(step); }

  key(event) {
    const [low, high] = this.x ?? [0, 1], all = this.lines.flatMap(line => line.data.step).sort((a, b) => a - b);
    if (!all.length) return;
    const at = this.view.at ?? all[all.length - 1];
    const move = by => {
      const inside = [...new Set(all)].filter(step => step >= low && step <= high);
      let index = inside.findIndex(step => step >= at - 1e-9);
      if (index < 0) index = inside.length - 1;
      this.point(inside[Math.max(0, Math.min(inside.length - 1, index + by))]);
    };
    const zoom = factor => {
      const middle = Math.max(low, Math.min(high, at)), half = (high - low) * factor / 2;
      this.view.setRange([Math.max(0, Math.floor(middle - half)), Math.ceil(middle + half)]);
    };
    const page = Math.max(1, Math.round(all.length / 20));
    const does = { ArrowLeft: () => move(-1), ArrowRight: () => move(1), PageDown: () => move(page), PageUp: () => move(-page),
      Home: () => this.point(low), End: () => this.point(high), "+": () => zoom(.5), "=": () => zoom(.5), "-": () => zoom(2),
      0: () => this.view.setRange(null), Escape: () => this.view.setRange(null) }[event.key];
    if (!does) return;
    event.preventDefault();
    this.legend.setAttribute("aria-live", "polite");
    does();
  }

  draw() {
    const { pen: g, width, height } = pen(this.canvas);
    if (width < 20) return;
    const shown = this.lines.filter(line => line.data?.step.length);
    const [low, high] = this.x = this.extent(shown);
    const X = step => LEFT + (step - low) / Math.max(1e-9, high - low) * (width - LEFT - RIGHT);
    const log = this.view.log;
    let [bottom, top] = this.heights(shown, low, high, log);
    const scale = log ? Math.log10 : value => value;
    const Y = value => TOP + (scale(top) - scale(log ? Math.max(value, bottom) : value)) / Math.max(1e-12, scale(top) - scale(bottom)) * (height - TOP - BOTTOM);
    g.font = "11px system-ui, sans-serif";
    g.lineWidth = 1;
    g.strokeStyle = css("--grid");
    g.fillStyle = css("--quiet");
    g.textAlign = "right";
    g.textBaseline = "middle";
    const heights = log ? logTicks(bottom, top) : ticks(bottom, top, 4), apart = heights.length > 1 && !log ? heights[1] - heights[0] : 0;
    for (const value of heights) {
      const y = Math.round(Y(value)) + .5;
      g.beginPath(); g.moveTo(LEFT, y); g.lineTo(width - RIGHT, y); g.stroke();
      g.fillText(short(value, apart), LEFT - 6, y);
    }
    g.textAlign = "center";
    g.textBaseline = "top";
    for (const step of ticks(low, high, Math.max(2, Math.floor(width / 90)))) {
      const x = X(step);
      if (Number.isInteger(step) && x > LEFT + 4 && x < width - 14) g.fillText(short(step), x, height - BOTTOM + 6);
    }
    g.save();
    g.beginPath(); g.rect(LEFT, 0, width - LEFT - RIGHT, height - BOTTOM + 1); g.clip();
    for (const mark of this.marks) {
      const x = Math.round(X(mark.step)) + .5;
      g.strokeStyle = g.fillStyle = mark.colour;
      g.setLineDash(mark.kind === "best" ? [4, 3] : [1, 3]);
      g.beginPath(); g.moveTo(x, TOP); g.lineTo(x, height - BOTTOM); g.stroke();
      g.setLineDash([]);
      g.textAlign = x > width - 60 ? "right" : "left";
      g.textBaseline = "top";
      g.fillText(mark.kind === "best" ? "★" : "✎", x + (x > width - 60 ? -3 : 3), 0);
    }
    for (const line of shown) this.line(g, line, X, Y);
    const at = this.view.at;
    if (at !== null && at >= low && at <= high) {
      g.strokeStyle = css("--quiet");
      g.beginPath(); g.moveTo(Math.round(X(at)) + .5, TOP); g.lineTo(Math.round(X(at)) + .5, height - BOTTOM); g.stroke();
      for (const line of shown) {
        const near = nearest(line.data.step, at);
        g.fillStyle = line.colour;
        g.beginPath(); g.arc(X(line.data.step[near]), Y(line.shown[near]), 3, 0, 7); g.fill();
      }
    }
    if (this.drag) {
      g.fillStyle = css("--accent");
      g.globalAlpha = .15;
      g.fillRect(Math.min(this.drag.from, this.drag.to), 0, Math.abs(this.drag.to - this.drag.from), height);
    }
    g.restore();
    this.tell(shown);
  }

  extent(lines) {
    if (this.view.range) return this.view.range;
    let low = Infinity, high = -Infinity;
    for (const { data } of lines) { low = Math.min(low, data.step[0]); high = Math.max(high, data.step[data.step.length - 1]); }
    return low < high ? [low, high] : Number.isFinite(low) ? [Math.max(0, low - 1), low + 1] : [0, 1];
  }

  /** Least and greatest of what is seen. A spike that would flatten the rest is seen when one smooths. */
  heights(lines, low, high, log) {
    let bottom = Infinity, top = -Infinity;
    for (const line of lines) {
      line.shown = smoothed(line.data.mean, this.view.smooth);
      for (let i = 0; i < line.data.step.length; i++) {
        if (line.data.step[i] < low || line.data.step[i] > high) continue;
        const least = this.view.smooth ? line.shown[i] : line.data.min?.[i] ?? line.shown[i];
        const most = this.view.smooth ? line.shown[i] : line.data.max?.[i] ?? line.shown[i];
        if (Number.isFinite(most)) top = Math.max(top, most);
        if (Number.isFinite(least) && (!log || least > 0)) bottom = Math.min(bottom, least);
      }
    }
    if (!(bottom <= top)) return log ? [.1, 1] : [0, 1];
    if (log) return bottom === top ? [bottom / 2, top * 2] : [bottom / 1.1, top * 1.1];
    const room = Math.max((top - bottom || Math.abs(top) || 1) * .06, Math.abs(top) * .005);
    // A share ends at one.
    return [bottom >= 0 && bottom < room ? 0 : bottom - room, top <= 1 && top > .9 && bottom >= 0 ? Math.max(1, top) : top + room];
  }

  line(g, line, X, Y) {
    const { step, mean, min, max } = line.data;
    g.fillStyle = g.strokeStyle = line.colour;
    if (min) {
      g.globalAlpha = this.view.smooth ? .1 : .22;
      g.beginPath();
      step.forEach((at, i) => g.lineTo(X(at), Y(max[i])));
      for (let i = step.length - 1; i >= 0; i--) g.lineTo(X(step[i]), Y(min[i]));
      g.fill();
    }
    const stroke = (values, alpha, thick) => {
      g.globalAlpha = alpha;
      g.lineWidth = thick;
      g.lineJoin = "round";
      g.setLineDash(line.dashed ? [5, 3] : []);
      g.beginPath();
      let open = false;
      values.forEach((value, i) => {
        if (!Number.isFinite(value)) { open = false; return; }
        if (open) g.lineTo(X(step[i]), Y(value)); else g.moveTo(X(step[i]), Y(value));
        open = true;
      });
      g.stroke();
      g.setLineDash([]);
    };
    if (this.view.smooth) stroke(mean, .25, 1);
    stroke(line.shown, 1, 1.75);
    if (step.length <= 40) {
      g.globalAlpha = 1;
      step.forEach((at, i) => { g.beginPath(); g.arc(X(at), Y(line.shown[i]), step.length === 1 ? 3 : 2, 0, 7); g.fill(); });
    }
    g.globalAlpha = 1;
  }

  /** The legend, with the values under the cursor or the last ones; it is what a screen reader reads. */
  tell(lines) {
    const at = this.view.at, parts = lines.map(line => {
      const near = at === null ? line.data.step.length - 1 : nearest(line.data.step, at), i = el("i");
      i.style.color = line.colour;
      if (line.dashed) i.className = "dashed";
      const spread = line.data.min && line.data.min[near] !== line.data.max[near] ? " (" + figure(line.data.min[near]) + " … " + figure(line.data.max[near]) + ")" : "";
      return el("span", {}, i, line.label + " " + figure(line.shown[near]) + spread);
    });
    const step = at === null ? null : el("span", { text: t("step") + " " + Math.round(at).toLocaleString("en-US") });
    this.legend.replaceChildren(...[step, ...parts].filter(Boolean));
    this.canvas.setAttribute("aria-label", this.title + ": " + (lines.map(line => {
      const { step, mean } = line.data, last = mean.length - 1;
      return line.label + " " + figure(mean[0]) + " " + t("at step") + " " + step[0] + ", " + figure(mean[last]) + " " + t("at step") + " " + step[last];
    }).join("; ") || t("nothing yet")));
  }
}

function nearest(steps, at) {
  let low = 0, high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < at) low = middle + 1; else high = middle;
  }
  return low > 0 && at - steps[low - 1] < steps[low] - at ? low - 1 : low;
}

/** A number at an axis, as finely as its neighbours are `apart`. */
function short(value, apart = 0) {
  const size = Math.abs(value);
  if (apart && size < 1e4 && apart < size && apart >= 1e-4) return value.toFixed(Math.max(0, -Math.floor(Math.log10(apart) + 1e-9)));
  if (size >= 1e6) return Number((value / 1e6).toPrecision(3)) + "M";
  if (size >= 1e4) return Number((value / 1e3).toPrecision(3)) + "k";
  if (size !== 0 && size < 1e-3) return value.toExponential(apart && apart < size / 5 ? 1 : 0);
  return String(Number(value.toPrecision(3)));
}
