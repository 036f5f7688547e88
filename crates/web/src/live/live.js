// ---- what is known ----

const POLL_MS = 2000;
let runs = [], chosen = null, overlaid = new Set(), details = null, streams = false, controls = false, listener = null;
const curves = new Map();   // by run: { bytes, range, series }
const sounds = new Map();   // by address: a decoded recording
let pulse = null, chartList = [], extraFigures = [], soundIndex = null;

function fail(error) {
  const gone = error instanceof TypeError;  // what fetch throws where nobody answers
  $("link").className = gone ? "off" : "";
  $("link").textContent = gone ? t("The program that served this page is gone.") : "";
  if (!gone) { $("error").textContent = error.message; $("error").hidden = false; }
  document.body.dataset.state = "error";
}

const getJson = async path => (await ask(path)).json();
const latest = name => details?.latest[name]?.[1];
const count = number => Math.round(number).toLocaleString("en-US");
const percent = share => (share * 100).toFixed((share > .99 && share < .9995) || (share > 0 && share < .1) ? 1 : 0) + " %";

/** "0:38", "12:05", "3:07:00", "2 d 3:07" */
function clock(seconds) {
  const s = Math.max(0, Math.round(seconds)), two = n => String(n).padStart(2, "0");
  if (s < 3600) return Math.floor(s / 60) + ":" + two(s % 60);
  const hours = Math.floor(s / 3600), rest = two(Math.floor(s / 60) % 60);
  return hours < 48 ? hours + ":" + rest + ":" + two(s % 60) : Math.floor(hours / 24) + " d " + hours % 24 + ":" + rest;
}

function ago(unix) {
  const seconds = Date.now() / 1000 - unix;
  if (seconds < 5) return new Intl.RelativeTimeFormat(language, { numeric: "auto" }).format(0, "second");
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]], [unit, size] = units.find(([, size]) => seconds >= size);
  return new Intl.RelativeTimeFormat(language).format(-Math.floor(seconds / size), unit);
}

// ---- asking, again and again ----

async function refresh() {
  const answer = await getJson("/api/runs");
  runs = answer.runs;
  streams = answer.streams;
  controls = answer.controls && Boolean(token);
  listener = answer.listener;
  $("locked").hidden = $("error").hidden = true;
  $("empty").hidden = runs.length > 0;
  if (!runs.some(run => run.id === chosen)) {
    const named = location.hash.match(/run=(\w+)/)?.[1];
    choose((runs.find(run => run.id === named) ?? runs.find(run => run.state === "running") ?? runs[0])?.id ?? null);
  }
  if (!streams) { $("link").className = "on"; $("link").textContent = t("files are read"); }
  drawRuns();
  await look();
  drawListening();
  document.body.dataset.state = runs.length ? "shown" : "empty";
}

function choose(id) {
  chosen = id;
  details = null;
  soundIndex = null;
  overlaid.delete(id);
  for (const chart of chartList) chart.root.remove();
  chartList = [];
}

/** Reads what has changed of the runs that are shown. */
async function look() {
  const run = runs.find(run => run.id === chosen);
  $("run").hidden = !run;
  if (!run) return;
  const changed = details?.bytes !== run.bytes || details?.state !== run.state || details?.id !== run.id;
  if (changed || Date.now() - (details?.asked ?? 0) > 10000) {
    const fresh = await getJson("/api/runs/" + run.id);
    if (run.id !== chosen) return;
    details = { ...fresh, bytes: run.bytes, asked: Date.now() };
    draw();
  }
  await lookAtCurves();
}

async function every(task, ms) {
  for (;;) {
    if (!document.hidden) { try { await task(); } catch (error) { fail(error); } }
    await new Promise(resolve => setTimeout(resolve, ms));
  }
}

/** News of a run that shows itself here. Read by hand: an EventSource cannot send a token. */
async function listen() {
  if (!streams) return;
  const response = await ask("/api/stream"), reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  $("link").className = "on";
  $("link").textContent = t("connected");
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const kind = part.match(/^event: (.*)$/m)?.[1], data = part.match(/^data: (.*)$/m)?.[1];
      if (kind && data) heard(kind, JSON.parse(data));
    }
  }
  throw new TypeError("the stream has ended");
}

function heard(kind, news) {
  if (kind === "pulse") {
    pulse = news;
    requestAnimationFrame(() => { drawPulse(); });
  } else if (kind === "now" && details) {
    for (const [name, value] of news.figures) details.latest[name] = [news.step, value];
    details.ranks = news.ranks;
    drawNow();
    drawStages();
  } else if (kind === "event" && details && !details.events.some(event => event.time === news.time && event.text === news.text)) {
    details.events.push(news);
    drawNow();
    drawEvents();
  }
}

// ---- runs ----

function colourOfRun(id) { return colourOf(id === chosen ? 0 : 1 + [...overlaid].indexOf(id)); }

function drawRuns() {
  $("runs").hidden = runs.length < 2;
  $("about").textContent = runs.length === 1 ? "" : runs.length + " " + t("Runs").toLowerCase();
  const rows = runs.map(run => {
    const dot = el("span", { class: "dot" });
    const is = run.id === chosen || overlaid.has(run.id);
    if (is) dot.style.background = colourOfRun(run.id);
    const tick = el("input", { type: "checkbox", "aria-label": t("Overlay") + ": " + run.name, checked: is, disabled: run.id === chosen });
    tick.checked = is;
    tick.addEventListener("change", () => {
      if (tick.checked) overlaid.add(run.id); else overlaid.delete(run.id);
      drawRuns();
      lookAtCurves().catch(fail);
    });
    const open = el("button", { type: "button", dir: "auto", text: run.name, onclick: () => { choose(run.id); refresh().catch(fail); $("now").focus(); } });
    if (run.id === chosen) open.setAttribute("aria-current", "true");
    const link = run.live && run.state === "running" && !streams ? el("a", { href: run.live, rel: "noreferrer", class: "hint", text: " " + t("live") }) : null;
    return el("tr", { class: run.id === chosen ? "chosen" : "" }, el("td", {}, tick, " ", dot), el("td", {}, open, link),
      el("td", {}, el("span", { class: "pill " + run.state, text: t(run.state) })),
      el("td", { class: "number", text: run.step === null ? "–" : count(run.step) + (run.steps ? " / " + count(run.steps) : "") }),
      el("td", { class: "number", text: figure(run.loss ?? run.held_out) }), el("td", { text: ago(run.written) }));
  });
  const table = $("run-table").tBodies[0], had = document.activeElement?.closest?.("#run-table") ? [...table.querySelectorAll("button, input")].indexOf(document.activeElement) : -1;
  table.replaceChildren(...rows);
  if (had >= 0) table.querySelectorAll("button, input")[had]?.focus();
}

// ---- now ----

function draw() {
  drawNow();
  drawStages();
  drawPulse();
  drawSound();
  drawCorpus();
  drawEvents();
}

function lossParts() { return details.names.filter(name => name.startsWith("validation/") && name !== "validation/loss").map(name => name.slice(11)); }

/** What keeps the run from going faster, in a sentence; or that nothing does. */
function verdict() {
  const { state, events } = details, last = [...events].reverse();
  const end = last.find(event => ["ended", "stopped", "failed"].includes(event.kind));
  const step = latest("loss") === undefined ? 0 : details.latest.loss[0];
  if (state === "killed") return ["over", `The process is gone, and has not said why: it was killed, or the machine went down, after step ${count(step)}. --resume goes on from the last checkpoint.`];
  if (state === "failed" && end) return ["over", end.text];
  if (state === "silent") return ["", `It has written nothing since ${new Date(runs.find(run => run.id === chosen).written * 1000).toLocaleString(language)}.`];
  if (state !== "running" && end) return [state === "ended" ? "good" : "bad", end.text];
  const said = last.find(event => ["verdict", "well", "started"].includes(event.kind));
  if (said?.kind === "verdict") return ["bad", said.text];
  if (said?.kind === "well") return ["good", said.text];
  const ready = latest("data_readiness");
  if (ready === undefined) return ["", "…"];
  return ready > .85 ? ["good", t("All is well: batches are there when the model asks for them.") + " " + percent(ready)] : ["bad", "The model device waits for data " + percent(1 - ready) + " of the time."];
}

function drawNow() {
  if (!details) return;
  const { facts, state } = details, steps = facts?.steps, step = Math.max(0, ...["loss", "validation/loss"].map(name => details.latest[name]?.[0] ?? 0), pulse && streams ? pulse.step : 0);
  $("name").textContent = details.name;
  $("name").title = details.place;
  $("state").textContent = t(state);
  $("state").className = "pill " + state;
  document.title = (state === "running" && steps ? Math.floor(100 * step / steps) + " % · " : "") + details.name + " · MyXTTS";
  const share = steps ? Math.min(1, step / steps) : state === "ended" ? 1 : 0;
  $("bar").style.width = 100 * share + "%";
  $("bar").parentElement.setAttribute("aria-valuenow", Math.round(100 * share));
  const [kind, text] = verdict();
  if ($("verdict").textContent !== text) $("verdict").textContent = text;
  $("verdict").className = "verdict " + kind;
  const stepMs = latest("step_ms"), compute = latest("stage/compute_ms"), speech = latest("audio_seconds_per_second"), busy = latest("model_gpu_busy");
  const parts = lossParts().map(name => latest(name) === undefined ? null : name + " " + figure(latest(name))).filter(Boolean);
  const eta = state === "running" ? latest("eta_seconds") : undefined;
  const could = stepMs && compute ? Math.min(1, compute / stepMs) : undefined;
  const tiles = [
    ["Step", count(step), steps ? "/ " + count(steps) : ""],
    ["Epoch", latest("epoch"), ""],
    ["Time left", eta === undefined ? undefined : clock(eta), ""],
    ["Loss", latest("loss") === undefined ? undefined : figure(latest("loss")), ""],
    ["Held-out loss", latest("validation/loss") === undefined ? undefined : figure(latest("validation/loss")), ""],
    ["Word error", latest("word_error_percent") === undefined ? undefined : percent(latest("word_error_percent") / 100), latest("word_error_percent") === undefined ? "" : t("at step") + " " + count(details.latest.word_error_percent[0])],
    ["Speech a second", speech === undefined ? undefined : figure(speech) + " s", could === undefined ? "" : percent(could) + " " + t("of what it could do")],
    ["Step time", stepMs === undefined ? undefined : figure(stepMs) + " ms", "± " + percent(latest("step_cv") ?? 0)],
    ["Learning rate", latest("learning_rate") === undefined ? undefined : latest("learning_rate").toExponential(1), ""],
    ["Gradient norm", latest("gradient_norm") === undefined ? undefined : figure(latest("gradient_norm")), ""],
    ["Padding", latest("padding_share") === undefined ? undefined : percent(latest("padding_share")), ""],
    ["GPU load", busy === undefined ? undefined : percent(busy), ""],
    ["Power", latest("model_gpu_power_watts") === undefined ? undefined : count(latest("model_gpu_power_watts")) + " W", ""],
    ["Clock", latest("model_gpu_sm_mhz") === undefined ? undefined : count(latest("model_gpu_sm_mhz")) + " MHz", latest("model_gpu_throttled") ? "held down" : ""],
    ["Temperature", latest("model_gpu_temperature_celsius") === undefined ? undefined : count(latest("model_gpu_temperature_celsius")) + " °C", ""],
  ].filter(([, value]) => value !== undefined);
  const tile = ([name, value, small]) => el("div", {}, el("dt", { text: t(name) }), el("dd", {}, el("bdi", { dir: "ltr", text: value }), " ", small ? el("small", { class: small.length + String(value).length > 12 ? "under" : "", dir: small.length > 9 ? "auto" : "ltr", text: small }) : null));
  const wide = parts.length > 1 ? [el("div", { class: "parts" }, el("dt", { text: t("Loss parts") }), el("dd", {}, el("small", { class: "under", text: parts.join(" · ") })))] : [];
  $("figures").replaceChildren(...tiles.map(tile), ...wide);
  drawMeters();
  drawRanks();
  $("control").hidden = !(controls && streams && state === "running");
}

function meter(name, share, text, kind) {
  const fill = el("i", { class: kind });
  fill.style.width = 100 * Math.max(0, Math.min(1, share)) + "%";
  return el("div", { class: "meter" }, el("div", { class: "label" }, el("span", { text: t(name) }), el("bdi", { dir: "ltr", text })), share > 0 ? el("div", { class: "track" }, fill) : null);
}

function drawMeters() {
  const pipeline = details.facts?.pipeline ?? {}, made = [];
  const ready = latest("data_readiness");
  if (ready !== undefined) made.push(meter("Data readiness", ready, percent(ready), ready > .95 ? "good" : "idle"));
  for (const [role, name] of [["model", "Memory, model role"], ["data", "Memory, data role"]]) {
    const used = latest(`memory/${role}_mib`), peak = latest(`memory/${role}_peak_mib`), cap = pipeline[role + "_cap_mib"], total = pipeline[role + "_total_mib"];
    if (used === undefined) continue;
    const limit = cap ?? total;
    made.push(meter(name, limit ? (peak ?? used) / limit : 0, count(used) + (limit ? " / " + count(limit) : "") + " MiB" + (cap ? " (" + t("cap") + ")" : ""), limit && (peak ?? used) > .95 * limit ? "idle" : "busy"));
  }
  const host = latest("memory/host_mib");
  if (host !== undefined) made.push(meter("Memory of the host", 0, count(host) + " MiB", "busy"));
  $("meters").replaceChildren(...made);
}

/** One row for each rank, from what rank 0 has gathered. */
function drawRanks() {
  const own = details.names.map(name => name.match(/^ranks\/(\d+)\/own_ms$/)?.[1]).filter(Boolean).sort((a, b) => a - b);
  $("ranks").hidden = own.length < 2;
  if (own.length < 2) return;
  const of = (rank, name) => latest(`ranks/${rank}/${name}`), cell = text => el("td", { class: "number", text });
  const head = [["Rank"], ["Step time", "number"], ["waits", "number"], ["Speech a second", "number"]].map(([text, kind]) => el("th", { class: kind ?? "", text: t(text) }));
  const rows = own.map(rank => el("tr", {}, el("td", { text: rank }), cell(figure(of(rank, "own_ms")) + " ms"), cell(figure(of(rank, "starved_ms")) + " ms"), cell(figure(of(rank, "audio_seconds_per_second")) + " s")));
  $("ranks").replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}

// ---- pipeline ----

/** A bar of shares: at work, waiting for something to do, waiting for room; of the model device, red where it stands idle. */
function shares(parts) {
  const track = el("div", { class: "track", role: "img", "aria-label": parts.map(([kind, share]) => t({ busy: "busy", empty: "waits for something to do", full: "waits for room", idle: "idle" }[kind]) + " " + percent(share)).join(", ") });
  for (const [kind, share] of parts) {
    const part = el("i", { class: kind });
    part.style.width = 100 * Math.max(0, Math.min(1, share)) + "%";
    track.append(part);
  }
  return track;
}

function slots(filled, all) {
  const box = el("div", { class: "slots", role: "img", "aria-label": figure(filled) + " / " + all });
  for (let i = 0; i < Math.min(all, 24); i++) {
    const fill = el("b"), slot = el("i", {}, fill);
    fill.style.width = 100 * Math.max(0, Math.min(1, filled - i)) + "%";
    box.append(slot);
  }
  return box;
}

function drawStages() {
  const p = details?.facts?.pipeline ?? {}, stepMs = latest("step_ms"), each = p.accumulate || 1;
  $("pipeline").hidden = stepMs === undefined;
  if (stepMs === undefined) return;
  const live = streams && pulse ? pulse : null;
  const feed = name => live?.feed?.[{ busy: "busy", blocked_on_empty: "waits_for_loader", blocked_on_full: "waits_for_room" }[name]] ?? latest("feed/" + name);
  const ms = name => latest("stage/" + name), ofStep = value => value === undefined ? 0 : value * each / stepMs;
  const compute = ofStep(ms("compute_ms")) / each, starved = ofStep(ms("starved_ms")) / each, gap = ofStep(ms("gap_ms")) / each;
  const workers = latest("loader/workers") ?? p.workers ?? 0, ready = live?.loader_ready ?? latest("loader/ready_batches"), loaderBusy = latest("loader/busy"), loaderFull = latest("loader/blocked_on_full");
  const ring = live?.feed?.mean_ready ?? latest("ring/mean_batches"), cross = ofStep(ms("device_to_device_ms")), copy = ofStep(ms("host_to_device_ms"));
  const small = text => el("small", { text });
  const stage = (name, where, slow, ...inside) => el("li", { class: "stage" + (slow ? " slow" : "") }, el("h3", { text: t(name) }), el("p", { text: where || "\u00a0" }), ...inside);
  const queue = (name, where, ...inside) => el("li", { class: "stage queue" }, el("h3", { text: t(name) }), el("p", { text: where || "\u00a0" }), ...inside);
  // The stage that makes the model wait stands out: as `profile` would blame the one with the largest share.
  const idle = starved > .15 ? [["loader", ofStep(ms("load_wait_ms"))], ["features", ofStep(ms("features_ms"))], ["transfer", cross + copy]].sort((a, b) => b[1] - a[1])[0][0] : null;
  const list = [
    stage("Loader", workers + " " + t("workers"), idle === "loader", loaderBusy === undefined ? small("–") : shares([["busy", loaderBusy], ["full", loaderFull ?? Math.max(0, 1 - loaderBusy)]]), loaderBusy === undefined ? null : small(t("busy") + " " + percent(Math.min(1, loaderBusy)))),
    queue("Host queue", (p.depth || "–") + " " + t("batches ready").replace(/ .*/, ""), slots(ready ?? 0, Math.max(p.depth || 0, ready ?? 0)), small(count(ready ?? 0) + " " + t("batches ready"))),
    stage("Features", p.data_device, idle === "features", feed("busy") === undefined ? null : shares([["busy", feed("busy")], ["empty", feed("blocked_on_empty")], ["full", feed("blocked_on_full")]]), small(feed("busy") === undefined ? figure(ms("features_ms")) + " ms" : t("busy") + " " + percent(feed("busy")) + " · " + figure(ms("features_ms")) + " ms")),
    stage("Transfer", p.route, idle === "transfer", shares([["busy", Math.min(1, cross + copy)]]), small(percent(cross + copy) + " " + t("of a step") + " · " + figure((ms("device_to_device_ms") ?? 0) + (ms("host_to_device_ms") ?? 0)) + " ms")),
    p.slots === 0 ? null : queue("Ring on the device", (p.slots || "–") + " " + t("batches ready").replace(/ .*/, ""), slots(ring ?? 0, p.slots || Math.ceil(ring ?? 0)), small((ring ?? 0).toFixed(1) + " " + t("batches ready") + " · " + t("empty") + " " + percent(live?.feed?.empty ?? latest("ring/empty") ?? 0))),
    stage("Training step", p.model_device, false, shares([["busy", compute], ["idle", Math.min(1 - compute, starved + gap)]]), small(t("trains") + " " + percent(Math.min(1, compute)) + " · " + t("idle") + " " + percent(starved + gap))),
  ];
  $("stages").replaceChildren(...list.filter(Boolean));
  $("route").textContent = [p.model_size, p.parameters ? (p.parameters / 1e6).toFixed(1) + " M" : null, p.activations, p.frames_per_batch ? count(p.frames_per_batch) + " frames" : null].filter(Boolean).join(" · ");
}

const TRACKS = { worker: "Loader", wait: "waits", copy: "copy", features: "Features", transfer: "Transfer", step: "Training step", idle: "idle" };

/** Rows as data flows; a batch has one colour in all of them, so that one sees it travel. */
function drawPulse() {
  const spans = streams && details?.state === "running" ? pulse?.spans ?? [] : [];
  $("timeline-box").hidden = !spans.length;
  $("no-timeline").hidden = spans.length > 0 || details?.state !== "running" || streams;
  if (!spans.length) return;
  if (details) { drawStages(); $("bar").style.width = 100 * (details.facts?.steps ? Math.min(1, pulse.step / details.facts.steps) : 0) + "%"; }
  const { pen: g, width, height } = pen($("timeline"));
  const rows = [...new Set(spans.map(([track, row]) => track + " " + row))].filter(row => !row.startsWith("idle"));
  const end = Math.max(...spans.map(span => span[3] + span[4])), begin = Math.max(Math.min(...spans.filter(span => span[0] === "step").map(span => span[3])), end - 60000);
  const left = 108, X = ms => left + (ms - begin) / Math.max(1e-6, end - begin) * (width - left - 4), tall = height / rows.length;
  g.font = "12px system-ui, sans-serif";
  g.textBaseline = "middle";
  rows.forEach((row, at) => {
    const [track, number] = row.split(" ");
    g.fillStyle = css("--quiet");
    g.textAlign = "right";
    g.fillText(t(TRACKS[track] ?? track) + (track === "worker" ? " " + (Number(number) + 1) : ""), left - 8, (at + .5) * tall);
    g.fillStyle = css("--grid");
    g.fillRect(left, (at + 1) * tall - .5, width - left, 1);
  });
  g.save();
  g.beginPath(); g.rect(left, 0, width - left, height); g.clip();
  for (const [track, number, step, start, length] of spans) {
    const at = track === "idle" ? rows.indexOf("step 0") : rows.indexOf(track + " " + number);
    const x = X(start), wide = Math.max(1, X(start + length) - x - .5);
    g.fillStyle = track === "idle" ? css("--idle") : track === "wait" ? css("--wait") : colourOf(step % 6);  // the seventh is red
    g.fillRect(x, at * tall + 3, wide, tall - 6);
    if (track === "step" && wide > 44) {
      g.fillStyle = isDark() ? "#12141b" : "#fff";
      g.textAlign = "center";
      g.fillText(count(step), x + wide / 2, (at + .5) * tall);
    }
  }
  g.restore();
  $("timeline-span").textContent = "· " + seconds((end - begin) / 1000);
  const idle = spans.filter(span => span[0] === "idle").reduce((sum, span) => sum + span[4], 0);
  $("timeline").setAttribute("aria-label", t("The last steps, as they ran") + ": " + t("idle") + " " + percent(idle / Math.max(1e-6, end - begin)));
}

// ---- curves ----

const view = {
  range: null, smooth: 0, log: false, at: null,
  setRange(range) { view.range = range; for (const chart of chartList) chart.draw(); lookAtCurves().catch(fail); },
  point(step) { view.at = step; for (const chart of chartList) chart.draw(); },
};

/** Which figures go together. */
function groups() {
  const names = details.names, have = list => list.filter(name => names.includes(name));
  const parts = lossParts().flatMap(name => [name, "validation/" + name]);
  const wanted = [
    [t("Loss"), have(["loss", "validation/loss"])], [t("Loss parts"), have(parts)], [t("Word error") + ", %", have(["word_error_percent"])], [t("Learning rate"), have(["learning_rate"])],
    [t("Step time") + ", ms", have(["step_ms", "step_ms_p99", "stage/compute_ms"])], [t("Step-time variation (CV)"), have(["step_cv"])],
    [t("Gradient norm"), names.filter(name => name.endsWith("gradient_norm"))],
    [t("Data readiness"), have(["data_readiness"])], [t("Speech a second"), have(["audio_seconds_per_second"])],
    [t("Memory") + ", MiB", have(["memory/model_mib", "memory/data_mib", "memory/host_mib", "model_gpu_memory_used_mib"])],
    [t("GPU load"), have(["model_gpu_busy", "data_gpu_busy"])], [t("Power") + ", W", have(["model_gpu_power_watts", "data_gpu_power_watts"])],
  ];
  return [...wanted, ...extraFigures.map(name => [name, have([name])])].filter(([, list]) => list.length);
}

async function lookAtCurves() {
  if (!details) return;
  const wanted = groups(), names = [...new Set(wanted.flatMap(([, list]) => list))];
  const shown = [chosen, ...overlaid].filter(id => runs.some(run => run.id === id));
  const range = view.range ? "&from=" + view.range[0] + "&to=" + view.range[1] : "";
  const key = names.join() + range;
  await Promise.all(shown.map(async id => {
    const { bytes } = runs.find(run => run.id === id), had = curves.get(id);
    if (had?.bytes === bytes && had.key === key && had.read_bytes >= had.size_bytes) return;
    const answer = await getJson(`/api/runs/${id}/curves?names=${names.map(encodeURIComponent).join()}${range}`);
    curves.set(id, { ...answer, bytes, key });
  }));
  drawCurves(wanted, shown);
  if (shown.some(id => curves.get(id)?.read_bytes < curves.get(id)?.size_bytes)) setTimeout(() => lookAtCurves().catch(fail), 50);
}

function drawCurves(wanted, shown) {
  if (chartList.length !== wanted.length || chartList.some((chart, i) => chart.title !== wanted[i][0])) {
    chartList = wanted.map(([title]) => new Chart(title, view, extraFigures.includes(title) ? () => { extraFigures = extraFigures.filter(name => name !== title); lookAtCurves().catch(fail); } : null));
    $("charts").replaceChildren(...chartList.map(chart => chart.root));
  }
  const several = shown.length > 1;
  const marks = [...details.checkpoints.filter(it => it.is_best).map(it => ({ step: it.step, kind: "best", colour: css("--good") })),
    ...details.events.filter(it => it.kind === "note").map(it => ({ step: it.step, kind: "note", colour: css("--warn") }))];
  wanted.forEach(([, list], at) => {
    const lines = shown.flatMap(id => list.map((name, i) => ({
      data: curves.get(id)?.series[name], label: several ? runs.find(run => run.id === id).name + (list.length > 1 ? " " + name : "") : name,
      colour: several ? colourOfRun(id) : colourOf(name.startsWith("validation/") ? list.indexOf(name.slice(11)) >= 0 ? list.indexOf(name.slice(11)) : i : i),
      dashed: several ? i > 0 : name.startsWith("validation/"),
    })).filter(line => line.data));
    chartList[at].set(lines, marks);
  });
  const sum = name => shown.reduce((sum, id) => sum + (curves.get(id)?.[name] ?? 0), 0), read = sum("read_bytes"), size = sum("size_bytes"), broken = sum("broken_lines");
  $("reading").textContent = [read < size ? percent(read / size) + " read" : "", broken ? `${count(broken)} lines of metrics.jsonl hold no figures and are passed over` : ""].filter(Boolean).join(" · ");
  const rest = details.names.filter(name => !wanted.some(([, list]) => list.includes(name))), key = rest.join();
  if ($("more").dataset.key !== key) {
    $("more").dataset.key = key;
    $("more").replaceChildren(option("", "…"), ...rest.map(name => option(name, name)));
  }
}

// ---- sound ----

let audioContext = null, playing = null;

async function decoded(path) {
  if (!sounds.has(path)) {
    if (sounds.size > 80) sounds.delete(sounds.keys().next().value);
    sounds.set(path, (async () => new OfflineAudioContext(1, 1, 22050).decodeAudioData(await (await ask(path)).arrayBuffer()))());
  }
  try { return await sounds.get(path); } catch (error) { sounds.delete(path); throw error; }
}

function hush() {
  if (!playing) return;
  playing.source.onended = null;
  playing.source.stop();
  playing.button?.setAttribute("aria-pressed", "false");
  playing = null;
}

/** Plays a buffer from a place on. */
function play(buffer, from, head, button, ended) {
  hush();
  audioContext ??= new AudioContext();
  audioContext.resume();
  const source = new AudioBufferSourceNode(audioContext, { buffer });
  source.connect(audioContext.destination);
  source.start(0, from);
  playing = { source, began: audioContext.currentTime - from, buffer, head, button };
  button?.setAttribute("aria-pressed", "true");
  source.onended = () => { hush(); ended?.(); };
}

function follow() {
  if (playing?.head) {
    const at = Math.min(1, (audioContext.currentTime - playing.began) / playing.buffer.duration);
    playing.head.style.left = 100 * at + "%";
  }
  requestAnimationFrame(follow);
}

function drawSound() {
  const { clips, sample_steps: steps } = details;
  $("sound").hidden = !clips.length || !steps.length;
  if ($("sound").hidden) return;
  const follows = soundIndex === null || soundIndex === Number($("when").max);
  $("when").max = steps.length - 1;
  if (follows || soundIndex >= steps.length) soundIndex = steps.length - 1;
  $("when").value = soundIndex;
  const key = chosen + clips.map(clip => clip.text).join() + language;
  if ($("clips").dataset.key !== key) {
    $("clips").dataset.key = key;
    $("clips").replaceChildren(...clips.map(clipBox));
  }
  showSound();
}

function player(name, more) {
  const canvas = el("canvas", { role: "img", "aria-label": t(name) + ": mel" }), over = el("canvas", { "aria-hidden": "true", class: "over" }), head = el("div", { class: "at" });
  Object.assign(over.style, { position: "absolute", inset: "0", background: "transparent" });
  const button = el("button", { type: "button", "aria-pressed": "false", text: "▶ " + t(name) });
  const words = el("p", { class: "heard", dir: "auto" });
  const root = el("div", { class: "player" }, el("div", { class: "row" }, button, ...more), el("div", { class: "heads" }, canvas, over, head), words);
  return { root, canvas, over, head, button, words };
}

function clipBox(clip, at) {
  const info = el("span", { class: "hint" }), spoken = player("Spoken", [info]);
  const both = el("button", { type: "button", text: t("A/B") }), recorded = clip.recorded ? player("Recording", [both]) : null;
  const box = el("div", { class: "clip" }, el("p", { class: "words", dir: "auto" }, clip.text || clip.symbols.filter(symbol => !symbol.startsWith("<")).join(""), " ", clip.id ? el("small", { text: clip.id }) : null),
    el("div", { class: "players" }, spoken.root, recorded?.root));
  box.parts = { spoken, recorded, info };
  const start = async (which, from = 0) => {
    const part = box.parts[which], buffer = await decoded(address(at, which === "recorded" ? "recording" : details.sample_steps[soundIndex]));
    play(buffer, Math.min(from, buffer.duration - .01), part.head, part.button);
    playing.which = which; playing.clip = at;
  };
  for (const which of ["spoken", "recorded"].filter(which => box.parts[which]))
    box.parts[which].button.addEventListener("click", () => (playing?.button === box.parts[which].button ? hush() : start(which).catch(fail)));
  // From one to the other at the same place, as a share of each.
  both.addEventListener("click", () => {
    const own = playing?.clip === at, share = own ? (audioContext.currentTime - playing.began) / playing.buffer.duration : 0, next = own && playing.which === "recorded" ? "spoken" : own ? "recorded" : "spoken";
    decoded(address(at, next === "recorded" ? "recording" : details.sample_steps[soundIndex])).then(buffer => start(next, share * buffer.duration)).catch(fail);
  });
  return box;
}

const address = (clip, step) => `/api/runs/${chosen}/sound/${clip}/${step}`;

async function showSound() {
  const step = details.sample_steps[soundIndex], run = chosen;
  $("when-shown").textContent = count(step);
  $("when").setAttribute("aria-valuetext", t("After step") + " " + step);
  showHeard(step, run).catch(fail);
  await Promise.all([...$("clips").children].map(async (box, at) => {
    if (box.shown === run + " " + step) return;
    const [buffer, facts] = await Promise.all([decoded(address(at, step)), getJson(`/api/runs/${run}/clip/${at}/${step}`)]);
    if (run !== chosen || step !== details.sample_steps[soundIndex]) return;
    box.shown = run + " " + step;
    const { spoken, recorded, info } = box.parts;
    paint(spoken, buffer, facts.pitch.spoken, facts.pitch.seconds, facts.alignment.spoken_frames, facts, details.clips[at]);
    let told = seconds(buffer.duration);
    if (recorded) {
      const other = await decoded(address(at, "recording"));
      paint(recorded, other, facts.pitch.recorded, facts.pitch.seconds, facts.alignment.recorded_frames, facts, details.clips[at]);
      told += " / " + seconds(other.duration);
    }
    info.textContent = told;
  })).catch(fail);
}

/** What a recogniser made of the clips after a step, and of their recordings. */
async function showHeard(step, run) {
  const now = details.heard.filter(([at]) => at === step), sum = place => now.reduce((sum, line) => sum + line[place], 0);
  $("when-error").textContent = now.length ? t("Word error") + " " + percent(sum(2) / Math.max(1, sum(3))) : "";
  await Promise.all([...$("clips").children].flatMap((box, clip) => [["spoken", step], ["recorded", null]].map(async ([which, when]) => {
    const place = box.parts[which]?.words, line = details.heard.find(line => line[0] === when && line[1] === clip), key = line ? [run, ...line].join() : "";
    if (!place || (place.dataset.key ?? "") === key) return;
    const heard = line ? await getJson(`/api/runs/${run}/heard/${clip}/${when ?? "recording"}`) : null;
    if (run !== chosen || step !== details.sample_steps[soundIndex]) return;
    place.dataset.key = key;
    place.replaceChildren(...(heard ? heardWords(heard) : []));
  })));
}

/** The words that were heard; wrong ones stand out, and are read out with what was to be said. */
function heardWords({ words, edits, of }) {
  const told = text => el("span", { class: "unseen", text: " (" + text + ") " });
  const shown = words.flatMap(({ wanted, heard }) => [" ", wanted === heard ? heard
    : wanted === null ? el("ins", { title: t("put in") }, heard, told(t("put in")))
    : heard === null ? el("del", { title: t("left out") }, wanted, told(t("left out")))
    : el("mark", { title: t("instead of") + " " + wanted }, heard, told(t("instead of") + " " + wanted))]);
  const none = words.every(({ heard }) => heard === null) ? " " + t("nothing") : "";
  return [el("span", { class: "hint", text: t("Heard") + ":" + none }), el("bdi", { dir: "auto" }, ...shown), el("span", { class: "hint", text: " · " + t("Word error") + " " + percent(edits / Math.max(1, of)) })];
}

/** Whether somebody listens, and how that goes. */
function drawListening() {
  const { behind, error } = listener ?? {}, has = details?.heard.length > 0;
  const text = error ?? (behind ? t("Sounds still to be listened to") + ": " + count(behind) : listener || has ? "" : t("Word error is shown here where a recogniser has listened: myxtts live DIR --asr-command 'program {wav}', or the same flag of train --live."));
  $("listening").hidden = !text;
  $("listening").className = error ? "hint bad" : "hint";
  if ($("listening").textContent !== text) $("listening").textContent = text;
}

/** Spectrogram, with the bounds of its tokens and its pitch over it. */
function paint({ canvas, over }, buffer, pitch, hop, frames, facts, clip) {
  const picture = new Picture(buffer.sampleRate, null, canvas);
  picture.push(buffer.getChannelData(0));
  picture.draw();
  const { pen: g, width, height } = pen(over), X = s => s / buffer.duration * width;
  if (frames?.length) {
    g.font = "11px system-ui, sans-serif";
    g.textAlign = "center";
    g.textBaseline = "bottom";
    let at = 0;
    frames.forEach((many, index) => {
      const from = X(at * facts.alignment.frame_seconds), wide = X(many * facts.alignment.frame_seconds);
      at += many;
      const symbol = clip.symbols[index] ?? "";
      if (!many || symbol.startsWith("<")) return;  // a blank, or the tag of a language
      g.fillStyle = "rgb(255 255 255 / .45)";
      g.fillRect(from, height - 18, 1, 18);
      g.fillStyle = "#fff";
      if (wide > 5) g.fillText(symbol, from + wide / 2, height - 3);
    });
  }
  const low = 60, high = 500, Y = hz => height * (1 - Math.log(hz / low) / Math.log(high / low));
  g.strokeStyle = "#4cf2ff";
  g.lineWidth = 2;
  g.beginPath();
  let open = false;
  (pitch ?? []).forEach((hz, i) => {
    if (!hz) { open = false; return; }
    if (open) g.lineTo(X(i * hop), Y(hz)); else g.moveTo(X(i * hop), Y(hz));
    open = true;
  });
  g.stroke();
}

/** One clip after every step, from the first to the last. */
async function playAll() {
  const { sample_steps: steps } = details, box = $("clips").children[0];
  const next = async index => {
    if (index >= steps.length) return;
    soundIndex = index;
    $("when").value = index;
    await showSound();
    const { spoken } = box.parts;
    play(await decoded(address(0, steps[index])), 0, spoken.head, spoken.button, () => next(index + 1).catch(fail));
  };
  await next(0);
}

// ---- corpus ----

function bars(entries, many) {
  const most = Math.max(1, ...entries.map(([, number]) => number));
  return el("ul", { class: "bars" }, ...entries.slice(0, many).map(([name, number]) => {
    const fill = el("i", { class: "busy" });
    fill.style.width = 100 * number / most + "%";
    return el("li", {}, el("span", { text: name || "–", title: name, dir: "auto" }), el("div", { class: "track" }, fill), el("span", { text: count(number) }));
  }));
}

function drawCorpus() {
  const corpus = details.facts?.corpus, key = JSON.stringify([chosen, corpus, language, details.events.length]);
  $("corpus").hidden = !corpus?.clips;
  if (!corpus?.clips || $("corpus-parts").dataset.key === key) return;
  $("corpus-parts").dataset.key = key;
  $("corpus-sum").textContent = `${count(corpus.clips)} ${t("clips")} · ${corpus.hours < 1 ? (corpus.hours * 60).toFixed(1) + " " + t("minutes") : figure(corpus.hours) + " " + t("hours")} · ${count(corpus.held_out)} ${t("held out")} · ${count(corpus.speaker_count)} ${t("speakers")}`;
  const part = (name, ...inside) => el("div", {}, el("h3", { text: t(name) }), ...inside);
  const lengths = corpus.durations, most = Math.max(1, ...lengths), hist = el("div", { class: "hist", role: "img", "aria-label": lengths.map((number, s) => `${s}–${s + 1} s: ${number}`).join(", ") });
  for (const [at, number] of lengths.entries()) {
    const column = el("i", { title: `${at}–${at + 1} s: ${count(number)}` });
    column.style.height = 100 * number / most + "%";
    hist.append(column);
  }
  const axis = el("div", { class: "hist-axis", "aria-hidden": "true" }, el("span", { text: "0 s" }), el("span", { text: lengths.length + " s" }));
  const failures = details.events.filter(event => event.kind === "warning" && event.text.includes(": left out: ")).map(event => event.text);
  const damaged = [...failures, ...corpus.damaged], language_ = new Intl.DisplayNames([language], { type: "language" });
  const called = code => { try { return language_.of(code); } catch { return code; } };
  const lines = (list, more) => list.length ? el("ul", { class: "lines" }, ...list.map(text => el("li", { dir: "auto", text })), ...(more > 0 ? [el("li", { text: "… + " + count(more) })] : [])) : el("p", { class: "hint", text: t("nothing") });
  $("corpus-parts").replaceChildren(part("Durations", hist, axis),
    part("Speakers", corpus.speakers.length > 1 ? bars(corpus.speakers, 12) : el("p", { text: corpus.speaker_count })),
    part("Languages", bars(corpus.languages.map(([code, number]) => [called(code), number]), 12)),
    part("Left out, and notes", lines(corpus.notes, 0)), part("Damaged", lines(damaged, corpus.damaged_count - corpus.damaged.length)));
}

function drawEvents() {
  const list = [...details.events].reverse();
  $("events").hidden = !list.length;
  const line = event => el("li", {}, el("b", { text: t("step") + " " + count(event.step) }), el("b", { text: new Date(event.time * 1000).toLocaleTimeString(language, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" }), title: new Date(event.time * 1000).toLocaleString(language) }),
    el("span", { class: event.kind === "verdict" ? "verdict-line" : event.kind, dir: "auto", text: (event.kind === "note" ? "✎ " : event.kind === "best" ? "★ " : "") + event.text }));
  $("event-list").replaceChildren(...list.slice(0, 200).map(line));
}

// ---- wiring ----

const given = location.hash.match(/token=([^&]+)/)?.[1];
if (given) {
  token = decodeURIComponent(given);
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname + location.search);  // not to be copied with the address
}
async function control(wish) {
  try {
    await ask("/api/control", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(wish) });
    $("answered").textContent = t("asked for");
  } catch (error) { $("answered").textContent = error.message; }
}
$("save").addEventListener("click", () => control({ action: "save" }));
$("stop").addEventListener("click", () => { if (confirm(t("Stop after saving") + "?")) control({ action: "stop" }); });
$("note-form").addEventListener("submit", event => {
  event.preventDefault();
  if ($("note").value.trim()) control({ action: "note", text: $("note").value }).then(() => { $("note").value = ""; });
});
$("unlock").addEventListener("submit", event => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("token", token);
  refresh().catch(fail);
});
$("smooth").addEventListener("input", () => { view.smooth = Number($("smooth").value) / 100; $("smooth-shown").textContent = view.smooth; for (const chart of chartList) chart.draw(); });
$("log").addEventListener("change", () => { view.log = $("log").checked; for (const chart of chartList) chart.draw(); });
$("reset").addEventListener("click", () => view.setRange(null));
$("more").addEventListener("change", () => { if ($("more").value) extraFigures.push($("more").value); lookAtCurves().catch(fail); });
$("when").addEventListener("input", () => { soundIndex = Number($("when").value); showSound(); });
$("play-all").addEventListener("click", () => playAll().catch(fail));
$("language").addEventListener("change", () => {
  language = $("language").value;
  localStorage.setItem("language", language);
  speakLanguage();
  chartList = [];
  drawRuns();
  if (details) { draw(); lookAtCurves().catch(fail); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawRuns(); if (details) { draw(); lookAtCurves().catch(fail); } });
new ResizeObserver(() => drawPulse()).observe($("timeline"));
speakLanguage();
every(refresh, POLL_MS);
every(listen, POLL_MS);
follow();
