// The page of a study: charts of lines, points, boxes and pairs of bars.

const FIGURES = JSON.parse(document.getElementById("data").textContent);
const places = [...document.querySelectorAll("figure[data-figure]")];

const finite = (values) => values.filter((value) => value != null && Number.isFinite(value));
const colorOf = (index) => `c${index % 8}`;

// The axis that holds all values: from zero, or logarithmic from the least that is positive.
function scaleOf(values, logs, from, to) {
  const found = finite(values).filter((value) => !logs || value > 0);
  const top = Math.max(...found, 0);
  if (!logs) return linear(Math.min(0, ...found), top * 1.05 || 1, from, to);
  const low = Math.min(...found) / 1.15;
  return logarithmic(low, Math.max(top * 1.15, low * 10), from, to);
}

function bottomAxis({ root, inner }, x, unit, logs) {
  const room = Math.max(2, Math.floor((inner.right - inner.left) / 60));
  for (const value of x.ticks(room)) {
    const at = x(value);
    draw("line", { x1: at, x2: at, y1: inner.top, y2: inner.bottom, class: "grid" }, root);
    if (at < inner.right - 6) label(root, at, inner.bottom + 16, short(value), "middle");
  }
  draw("line", { x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom, class: "axis" }, root);
  label(root, inner.right, 12, `${unit}${logs ? ", log scale" : ""}`, "end");
}

function drawChart(figure, spec) {
  const clocked = spec.x_unit === "time";
  const place = frame(figure, {
    title: spec.title, height: 300,
    keys: spec.lines.map((line, index) => ({
      text: line.name, color: colorOf(index),
      ...(spec.drawn === "points" ? { box: "dot" } : {}),
    })),
  });
  const { root, inner } = place;
  const xs = spec.lines.flatMap((line) => line.x);
  const ys = spec.lines.flatMap((line) => line.y);
  const x = clocked
    ? linear(Math.min(...xs), Math.max(...xs), inner.left, inner.right)
    : scaleOf(xs, spec.log_x, inner.left, inner.right);
  const y = scaleOf(ys, spec.log_y, inner.bottom, inner.top);
  const [size, prefix] = magnitude(Math.max(...finite(ys), 0) / 10);
  leftAxis(place, y, { size, unit: `${prefix ? `${prefix} ` : ""}${spec.y_unit}${spec.log_y ? ", log scale" : ""}` });
  if (clocked) timeAxis(place, x, [Math.min(...xs), Math.max(...xs)], "time");
  else bottomAxis(place, x, spec.x_unit, spec.log_x);
  const plot = draw("g", { "clip-path": place.clip }, root);
  if (spec.trend) {
    const [from, to] = [0, Math.max(...xs)];
    const at = (value) => y(spec.trend[0] + spec.trend[1] * value);
    draw("path", { d: `M${x(from)} ${at(from)}L${x(to)} ${at(to)}`, class: "line thin dashed soft" }, plot);
  }
  spec.lines.forEach((line, index) => {
    const group = draw("g", { class: colorOf(index) }, plot);
    if (spec.drawn === "points") {
      line.x.forEach((value, which) => {
        if (line.y[which] == null) return;
        const dot = draw("circle", { cx: x(value), cy: y(line.y[which]), r: 4.5, class: "dot" }, group);
        const name = (spec.labels[index] || [])[which] || line.name;
        draw("title", {}, dot).textContent = `${name}: ${short(value)}, ${short(line.y[which])}`;
      });
      return;
    }
    const shown = path(line.x, line.y, x, y, spec.drawn === "steps");
    draw("path", { d: shown, class: "line" }, group);
  });
}

// Columns under the names of their groups; `each` draws one of them in its room.
function columns(place, items, each) {
  const { root, inner } = place;
  const groups = [...new Set(items.map((item) => item.group))];
  const names = [...new Set(items.map((item) => item.name))];
  const room = (inner.right - inner.left) / groups.length;
  groups.forEach((group, index) => {
    const left = inner.left + room * index;
    if (index) draw("line", { x1: left, x2: left, y1: inner.top, y2: inner.bottom, class: "grid" }, root);
    label(root, left + room / 2, inner.bottom + 16, group, "middle", "strong");
    const members = items.filter((item) => item.group === group);
    const step = (room * 0.86) / members.length;
    members.forEach((item, which) => {
      const box = draw("g", { class: colorOf(names.indexOf(item.name)) }, root);
      each(box, item, left + room * 0.07 + step * (which + 0.5), step);
    });
  });
  draw("line", { x1: inner.left, x2: inner.right, y1: inner.bottom, y2: inner.bottom, class: "axis" }, root);
}

const named = (items, extra) => [
  ...[...new Set(items.map((item) => item.name))].map((name, index) => ({ text: name, color: colorOf(index), box: "bar-ours" })),
  ...extra,
];

function drawBoxes(figure, spec) {
  const known = spec.boxes.some((box) => box.paper != null);
  const keys = named(spec.boxes, known ? [{ text: "the paper's mean", color: "soft", box: "diamond" }] : []);
  const place = frame(figure, { title: spec.title, height: 300, keys });
  const { inner } = place;
  const values = spec.boxes.flatMap((box) => [...box.five, box.paper]);
  const y = scaleOf(values, false, inner.bottom, inner.top);
  leftAxis(place, y, { unit: spec.unit });
  columns(place, spec.boxes, (group, box, middle, room) => {
    const half = Math.min(22, room * 0.36);
    const [least, lower, median, upper, most] = box.five.map(y);
    draw("line", { x1: middle, x2: middle, y1: most, y2: least, class: "whisker" }, group);
    draw("rect", { x: middle - half, width: 2 * half, y: upper, height: Math.max(1, lower - upper), class: "box" }, group);
    draw("line", { x1: middle - half, x2: middle + half, y1: median, y2: median, class: "median" }, group);
    if (box.paper != null) {
      const at = y(box.paper);
      draw("path", { d: `M${middle} ${at - 5}l5 5l-5 5l-5 -5z`, class: "paper" }, group);
    }
    const shown = box.five.map(short).join(" · ");
    draw("title", {}, group).textContent = `${box.group}, ${box.name}: ${shown}${box.paper == null ? "" : `; paper ${short(box.paper)}`}`;
  });
}

function drawBars(figure, spec) {
  const known = spec.bars.some((bar) => bar.paper != null);
  const keys = named(spec.bars, known ? [{ text: "the paper's, beside ours", color: "soft", box: "bar-paper" }] : []);
  const place = frame(figure, { title: spec.title, height: 300, keys });
  const { inner } = place;
  const y = scaleOf(spec.bars.flatMap((bar) => [bar.paper, bar.ours]), false, inner.bottom, inner.top);
  leftAxis(place, y, { unit: spec.unit });
  columns(place, spec.bars, (group, bar, middle, room) => {
    const width = Math.min(22, room * 0.42);
    const sides = [[bar.paper, "bar-paper", middle - width], [bar.ours, "bar-ours", middle]];
    for (const [value, className, at] of sides)
      if (value != null) draw("rect", { x: at, width, y: y(value), height: Math.max(0, inner.bottom - y(value)), class: className }, group);
    draw("title", {}, group).textContent = `${bar.group}, ${bar.name}: paper ${bar.paper == null ? "–" : short(bar.paper)}, ours ${short(bar.ours)}`;
  });
}

const DRAWN = { chart: drawChart, boxes: drawBoxes, bars: drawBars };

function drawAll() {
  for (const place of places) {
    if (place.closest("details:not([open])")) continue;
    const spec = FIGURES[Number(place.dataset.figure)];
    DRAWN[spec.kind](place, spec);
  }
}

drawNowAndAtNewWidth(drawAll);
document.addEventListener("toggle", (event) => event.target.querySelector("figure") && drawAll(), true);
