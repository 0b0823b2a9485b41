// Drawing: scales, ticks, lines and the two kinds of charts. Knows nothing of journals.

// The name space is taken from the page's own drawing, so that no address stands in the file.
const SVG = document.querySelector("svg").namespaceURI;

function draw(tag, attributes, parent) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (parent) parent.append(element);
  return element;
}

function say(tag, className, text, parent) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  if (parent) parent.append(element);
  return element;
}

function label(parent, x, y, text, anchor = "start", className = "") {
  const element = draw("text", { x, y, "text-anchor": anchor, class: className }, parent);
  element.textContent = text;
  return element;
}

// Numbers in words ------------------------------------------------------------------------------

const short = (value) => String(Number(value.toPrecision(3)));

function magnitude(top) {
  if (top >= 2e6) return [1e6, "M"];
  return top >= 2e3 ? [1e3, "k"] : [1, ""];
}

function amount(value, unit) {
  if (value == null) return "–";
  const [size, prefix] = magnitude(value);
  return `${short(value / size)} ${prefix}${unit}`.trim();
}

function seconds(value) {
  if (value == null) return "–";
  if (value < 100) return `${value.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(value) / 60);
  if (minutes < 60) return `${minutes} min ${String(Math.round(value) % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

// A span in its largest whole unit; from five minutes on, halves of a minute will do.
function span(value) {
  if (value % 3600 === 0) return `${value / 3600} h`;
  return value % 60 === 0 || value >= 300 ? `${short(value / 60)} min` : `${short(value)} s`;
}

const cut = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

// A page that shows the time of day sets it to that of a day.
let dayLength = Infinity;

function clock(at, parts = "h:min:s") {
  const whole = Math.round(at) % dayLength;
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  const [hours, minutes, rest] = [two(whole / 3600), two((whole % 3600) / 60), two(whole % 60)];
  if (parts === "h:min") return `${hours}:${minutes}`;
  return parts === "min:s" ? `${minutes}:${rest}` : `${hours}:${minutes}:${rest}`;
}

// Scales and ticks ------------------------------------------------------------------------------

function linear(low, high, from, to) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.back = (pixel) => low + ((pixel - from) / (to - from)) * span;
  scale.ticks = (count) => ticks(low, high, count);
  return scale;
}

function logarithmic(low, high, from, to) {
  const span = Math.log(high / low);
  const scale = (value) => from + (Math.log(Math.max(value, low) / low) / span) * (to - from);
  scale.ticks = (count) => {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1)
      for (const step of [1, 2, 5]) found.push(step * 10 ** power);
    const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
    return inside.length <= count ? inside : inside.filter((v) => /^[10.]+$/.test(String(v)));
  };
  return scale;
}

function ticks(low, high, count) {
  const raw = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999) * power;
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place += 1)
    found.push(Number((place * step).toPrecision(12)));
  return found;
}

const SPANS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
  86400, 172800, 604800];

// Ticks at round instants, and how they are written: as short as the range allows.
function timeTicks(low, high, width) {
  const stepFor = (pixels) => SPANS.find((step) => (high - low) / step <= width / pixels) || 2592000;
  let [step, parts] = [stepFor(60), "h:min"];
  if (high <= 3600) parts = "min:s";
  else if (step < 60) [step, parts] = [stepFor(80), "h:min:s"];
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) found.push(at);
  return { found, parts };
}

// Lines -----------------------------------------------------------------------------------------

// The value that holds at an instant: that of the last point not after it.
function valueAt(line, at) {
  const place = lastBefore(line.at_s, at);
  return place < 0 ? null : line.values[place];
}

function lastBefore(instants, at) {
  let low = 0;
  let high = instants.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (instants[middle] <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function highest(lines, [from, to]) {
  let top = 0;
  for (const line of lines) {
    const first = Math.max(0, lastBefore(line.at_s, from));
    for (let place = first; place < line.at_s.length && line.at_s[place] <= to; place += 1)
      if (line.values[place] > top) top = line.values[place];
  }
  return top;
}

// The highest value of each span of time: of several noisy lines, what can still be distinguished.
function worst(line, bucket) {
  const at_s = [];
  const values = [];
  let current = null;
  line.at_s.forEach((at, place) => {
    const value = line.values[place];
    const which = Math.floor(at / bucket);
    if (which === current && value != null && values.at(-1) != null) {
      if (value > values.at(-1)) values[values.length - 1] = value;
      return;
    }
    current = which;
    at_s.push(at);
    values.push(value);
  });
  return { at_s, values };
}

// Four pixels of time.
function bucketOf([from, to], inner) {
  return (4 * (to - from)) / Math.max(1, inner.right - inner.left);
}

function path(xs, values, x, y, stepped) {
  let text = "";
  let pen = false;
  for (let place = 0; place < xs.length; place += 1) {
    const value = values[place];
    const px = x(xs[place]).toFixed(1);
    if (value == null) {
      if (pen && stepped) text += `H${px}`;
      pen = false;
      continue;
    }
    const py = y(value).toFixed(1);
    // The stub shows a value that stands alone between two gaps.
    if (!pen) text += `M${px} ${py}h.1`;
    else text += stepped ? `H${px}V${py}` : `L${px} ${py}`;
    pen = true;
  }
  return text;
}

// The surface under a stepped line, as one rectangle per level.
function surface(line, x, y) {
  let text = "";
  for (let place = 0; place + 1 < line.at_s.length; place += 1) {
    if (line.values[place] == null) continue;
    const left = x(line.at_s[place]).toFixed(1);
    const right = x(line.at_s[place + 1]).toFixed(1);
    text += `M${left} ${y(0)}V${y(line.values[place]).toFixed(1)}H${right}V${y(0)}Z`;
  }
  return text;
}

// The surface between two lines that share their instants.
function between(low, high, x, y) {
  if (!low.at_s.length || low.at_s.length !== high.at_s.length) return "";
  const kept = low.at_s.map((_, place) => place)
    .filter((place) => low.values[place] != null && high.values[place] != null);
  const up = kept.map((p) => `${x(high.at_s[p]).toFixed(1)} ${y(high.values[p]).toFixed(1)}`);
  const down = kept.reverse().map((p) => `${x(low.at_s[p]).toFixed(1)} ${y(low.values[p]).toFixed(1)}`);
  return kept.length ? `M${up.join("L")}L${down.join("L")}Z` : "";
}

// Charts ----------------------------------------------------------------------------------------

const MARGIN = { left: 50, right: 14, top: 26, bottom: 24 };
let clips = 0;

function frame(figure, spec) {
  figure.replaceChildren();
  const width = Math.max(280, figure.clientWidth || 640);
  const inner = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: spec.height - (spec.timeless ? 8 : MARGIN.bottom) };
  const caption = say("figcaption", "", undefined, figure);
  say("b", "", spec.title, caption);
  for (const key of spec.keys || []) {
    const item = say("span", "key", undefined, caption);
    const sample = draw("svg", { viewBox: "0 0 22 10", "aria-hidden": "true", class: key.color || "" }, item);
    if (key.box) draw("rect", { x: 1, y: 0, width: 20, height: 10, class: key.box }, sample);
    else draw("path", { d: "M1 5H21", class: `line ${key.className || ""}` }, sample);
    item.append(typeof key.text === "function" ? key.text(inner) : key.text);
  }
  const root = draw("svg", {
    viewBox: `0 0 ${width} ${spec.height}`, role: "img", "aria-label": spec.about || spec.title,
  }, figure);
  clips += 1;
  const clip = draw("clipPath", { id: `clip${clips}` }, root);
  draw("rect", { x: inner.left, y: inner.top - 8, width: inner.right - inner.left, height: inner.bottom - inner.top + 12 }, clip);
  return { root, inner, clip: `url(#clip${clips})` };
}

function leftAxis({ root, inner }, y, spec) {
  for (const value of y.ticks(Math.max(3, Math.floor((inner.bottom - inner.top) / 34)))) {
    if (spec.whole && value % 1) continue;
    const at = y(value);
    draw("line", { x1: inner.left, x2: inner.right, y1: at, y2: at, class: "grid" }, root);
    label(root, inner.left - 7, at + 4, short(value / (spec.size || 1)), "end");
  }
  label(root, inner.left, 12, spec.unit, "start");
}

function timeAxis({ root, inner }, x, [from, to], unit, timeless) {
  const marks = timeTicks(from, to, inner.right - inner.left);
  for (const at of marks.found) {
    draw("line", { x1: x(at), x2: x(at), y1: inner.top, y2: inner.bottom, class: "grid" }, root);
    if (timeless) continue;
    const near = x(at) > inner.right - 22;
    label(root, near ? inner.right + 8 : x(at), inner.bottom + 16, clock(at, marks.parts), near ? "end" : "middle");
  }
  draw("line", { x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom, class: "axis" }, root);
  if (!timeless) label(root, inner.right, 12, `${unit} (${marks.parts})`, "end");
}

// A chart over time. The spec names series, a limit, a fan and marks; the answer is what the cursor needs.
function timeChart(figure, spec, range) {
  const place = frame(figure, spec);
  const { root, inner } = place;
  const x = linear(range[0], range[1], inner.left, inner.right);
  const measured = highest(spec.series.filter((one) => !one.loose).flatMap((one) => (one.fan ? [one.line, one.fan.high] : [one.line])), range);
  const loose = highest(spec.series.filter((one) => one.loose).map((one) => one.line), range);
  const base = measured || loose;
  const top = Math.max(base * 1.06, Math.min(loose, base * 1.4) * 1.04, spec.limit ? spec.limit * 1.25 : 0, spec.least || 1);
  const logs = spec.limit && top > 12 * spec.limit;
  const y = logs
    ? logarithmic(Math.max(spec.limit / 100, 0.01), top, inner.bottom, inner.top)
    : linear(0, top, inner.bottom, inner.top);
  const [size, prefix] = spec.scaled ? magnitude(top) : [spec.size || 1, ""];
  leftAxis(place, y, { ...spec, size, unit: `${prefix}${spec.unit}${logs ? ", log scale" : ""}` });
  timeAxis(place, x, range, spec.timeUnit, spec.timeless);
  const plot = draw("g", { "clip-path": place.clip }, root);
  if (spec.limit) {
    draw("rect", { x: inner.left, y: inner.top - 8, width: inner.right - inner.left, height: Math.max(0, y(spec.limit) - inner.top + 8), class: "wash" }, plot);
    draw("line", { x1: inner.left, x2: inner.right, y1: y(spec.limit), y2: y(spec.limit), class: "slo" }, plot);
    label(root, inner.right - 4, y(spec.limit) - 5, spec.limitText, "end", "late");
  }
  for (const one of spec.series) {
    const group = draw("g", { class: one.color }, plot);
    if (one.fan) draw("path", { d: between(one.fan.low, one.fan.high, x, y), class: "area" }, group);
    if (one.filled) draw("path", { d: surface(one.line, x, y), class: "area" }, group);
    const line = one.worst ? worst(one.line, bucketOf(range, inner)) : one.line;
    draw("path", { d: path(line.at_s, line.values, x, y, one.stepped), class: `line ${one.className || ""}` }, group);
  }
  if (spec.now != null) {
    draw("line", { x1: x(spec.now), x2: x(spec.now), y1: inner.top - 6, y2: inner.bottom, class: "now" }, root);
    const room = x(spec.now) + 32 < inner.right;
    label(root, x(spec.now) + (room ? 4 : -4), inner.top + 4, "now", room ? "start" : "end", "strong");
  }
  for (const mark of spec.marks || []) {
    if (mark.at < range[0] || mark.at > range[1]) continue;
    const group = draw("g", { class: mark.color }, root);
    const at = mark.value == null ? inner.bottom - 6 : y(mark.value);
    const bad = mark.kind === "refused" || mark.kind === "blind";
    draw("path", { d: sign(mark.kind, x(mark.at), at, spec.markSize || 5), class: bad ? "event bad" : "event" }, group);
  }
  root.setAttribute("tabindex", "0");
  const cursor = draw("line", { y1: inner.top, y2: inner.bottom, class: "cursor", visibility: "hidden" }, root);
  const brush = draw("rect", { y: inner.top, height: inner.bottom - inner.top, class: "brush", visibility: "hidden" }, root);
  return { root, x, inner, cursor, brush };
}

// A cursor over charts that share their time axis, by pointer or by the arrow keys; dragging zooms.
function timeCursor(tip, { charts, tell, zoom, whole, after = () => {} }) {
  let keyed = null;

  function point(at, page) {
    for (const chart of charts()) {
      const x = chart.x(at);
      const inside = x >= chart.inner.left - 1 && x <= chart.inner.right + 1;
      chart.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
      chart.cursor.setAttribute("x1", x);
      chart.cursor.setAttribute("x2", x);
    }
    if (!page) return;
    tell(at);
    tip.hidden = false;
    const right = page.pageX + 18 + tip.offsetWidth > scrollX + document.documentElement.clientWidth;
    tip.style.left = `${Math.max(scrollX + 6, right ? page.pageX - tip.offsetWidth - 14 : page.pageX + 16)}px`;
    tip.style.top = `${page.pageY + 16}px`;
  }

  function unpoint() {
    tip.hidden = true;
    keyed = null;
    for (const chart of charts()) chart.cursor.setAttribute("visibility", "hidden");
    after();
  }

  function listen(chart) {
    const { root, inner } = chart;
    let from = null;
    const scale = () => root.viewBox.baseVal.width / root.getBoundingClientRect().width;
    const pixel = (event) => Math.min(inner.right, Math.max(inner.left, (event.clientX - root.getBoundingClientRect().left) * scale()));
    root.addEventListener("pointermove", (event) => {
      const at = pixel(event);
      if (from != null) {
        chart.brush.setAttribute("x", Math.min(from, at));
        chart.brush.setAttribute("width", Math.abs(at - from));
        chart.brush.setAttribute("visibility", "visible");
      }
      point(chart.x.back(at), event);
    });
    root.addEventListener("pointerdown", (event) => {
      if (zoom && event.pointerType === "mouse" && event.button === 0) {
        from = pixel(event);
        root.setPointerCapture(event.pointerId);
      }
      point(chart.x.back(pixel(event)), event);
    });
    root.addEventListener("pointerup", (event) => {
      const [begin, to] = [from, pixel(event)];
      from = null;
      chart.brush.setAttribute("visibility", "hidden");
      if (begin != null && Math.abs(to - begin) > 8) zoom([chart.x.back(Math.min(begin, to)), chart.x.back(Math.max(begin, to))]);
    });
    root.addEventListener("pointerleave", unpoint);
    root.addEventListener("blur", unpoint);
    if (zoom) root.addEventListener("dblclick", () => zoom(whole));
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") unpoint();
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      const step = (inner.right - inner.left) / 60;
      keyed = Math.min(inner.right, Math.max(inner.left, (keyed ?? inner.right) + (event.key === "ArrowLeft" ? -step : step)));
      const box = root.getBoundingClientRect();
      point(chart.x.back(keyed), { pageX: scrollX + box.left + keyed / scale(), pageY: scrollY + box.top + 20 });
    });
    return chart;
  }

  return { listen, point, unpoint };
}

function sign(kind, x, y, half) {
  const [px, py] = [x.toFixed(1), y.toFixed(1)];
  const tall = 1.6 * half;
  if (kind === "up") return `M${px} ${(y - tall - 1).toFixed(1)}l${half} ${tall}h${-2 * half}z`;
  if (kind === "down") return `M${px} ${(y + tall + 1).toFixed(1)}l${half} ${-tall}h${-2 * half}z`;
  if (kind === "refused") return `M${px} ${py}m-5 -3l2 -2l3 3l3 -3l2 2l-3 3l3 3l-2 2l-3 -3l-3 3l-2 -2l3 -3z`;
  return `M${px} ${py}m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z`;
}

// The share of records against their delay: one rising curve per run.
function shareChart(figure, spec) {
  const place = frame(figure, spec);
  const { root, inner } = place;
  const top = Math.max(spec.limit * 1.3, ...spec.curves.map((curve) => curve.delay_s.at(-1) || 0));
  const logs = top > 12 * spec.limit;
  const x = logs
    ? logarithmic(Math.max(spec.limit / 100, 0.01), top, inner.left, inner.right)
    : linear(0, top, inner.left, inner.right);
  const y = linear(0, 100, inner.bottom, inner.top);
  leftAxis(place, y, { unit: "% of records" });
  for (const value of x.ticks(Math.max(2, Math.floor((inner.right - inner.left) / 70)))) {
    draw("line", { x1: x(value), x2: x(value), y1: inner.top, y2: inner.bottom, class: "grid" }, root);
    if (x(value) < inner.right - 8) label(root, x(value), inner.bottom + 16, short(value), "middle");
  }
  draw("line", { x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom, class: "axis" }, root);
  label(root, inner.right, 12, `delay (s${logs ? ", log scale" : ""})`, "end");
  draw("line", { x1: x(spec.limit), x2: x(spec.limit), y1: inner.top, y2: inner.bottom, class: "slo" }, root);
  const left = x(spec.limit) > inner.right - 70;
  label(root, x(spec.limit) + (left ? -6 : 6), inner.bottom - 8, spec.limitText, left ? "end" : "start", "late");
  const plot = draw("g", { "clip-path": place.clip }, root);
  for (const curve of spec.curves) {
    const xs = [curve.delay_s[0], ...curve.delay_s, top];
    const shares = [0, ...curve.fraction.map((share) => 100 * share), 100];
    const group = draw("g", { class: curve.color }, plot);
    if (curve.delay_s.length) draw("path", { d: path(xs, shares, x, y, true), class: "line" }, group);
  }
}

// Bars of parts that add up, with an outline for what they are measured against.
function barChart(figure, spec) {
  const row = spec.bars.some((bar) => bar.name) ? 62 : 46;
  const place = frame(figure, { ...spec, height: MARGIN.top + MARGIN.bottom + row * spec.bars.length });
  const { root, inner } = place;
  const left = 2;
  const top = Math.max(1e-9, ...spec.bars.map((bar) => Math.max(bar.outline, bar.total)));
  const x = linear(0, top * 1.02, left, inner.right);
  const marks = x.ticks(Math.max(2, Math.floor((inner.right - left) / 70)));
  for (const value of marks) {
    draw("line", { x1: x(value), x2: x(value), y1: inner.top, y2: inner.bottom, class: "grid" }, root);
    label(root, x(value), inner.bottom + 16, short(value), value === 0 ? "start" : "middle");
  }
  label(root, inner.right, 12, spec.unit, "end");
  spec.bars.forEach((bar, index) => {
    const y = inner.top + row * index;
    const group = draw("g", { class: bar.color }, root);
    const fits = Math.floor((inner.right - left) / 7.5);
    if (bar.name) label(group, left, y + 13, cut(bar.name, fits), "start", "strong");
    label(group, left, y + row - 33, bar.text);
    let from = 0;
    for (const part of bar.parts) {
      const width = Math.max(0, x(from + part.value) - x(from));
      draw("rect", { x: x(from), y: y + row - 27, width, height: 18, class: part.className }, group);
      from += part.value;
    }
    draw("rect", { x: x(0), y: y + row - 27, width: x(bar.outline) - x(0), height: 18, class: "seg-peak" }, group);
  });
}

// Charts are as wide as their place: drawn at once, and again when that changes.
function drawNowAndAtNewWidth(drawAll) {
  let width = innerWidth;
  drawAll();
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    drawAll();
  });
}
