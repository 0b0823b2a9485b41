// The page: which charts there are, what the cursor says, and the table of decisions.

const DATA = JSON.parse(document.getElementById("data").textContent);
const RUNS = DATA.runs.map((run, index) => ({ ...run, color: `c${index}`, shown: true }));
const ALONE = RUNS.length === 1;
const LIVE = RUNS.some((run) => run.begin_s > 0);
const FIRST = Math.min(...RUNS.map((run) => run.lines.load.at_s[0]));
const WHOLE = [FIRST, Math.max(...RUNS.map((run) => run.end_s), FIRST + 1)];
const SLO = `SLO ${short(DATA.slo_s)} s`;
const PAGE = 100;
const tip = document.getElementById("tip");
const byId = (id) => document.getElementById(id);
let range = WHOLE;
let charts = [];
let shownRows = PAGE;

const shown = () => RUNS.filter((run) => run.shown);
const drawn = (line) => line.values.some((value) => value != null);
const timeUnit = LIVE ? "time since the start" : "time";

// One line per run, coloured by the run.
function perRun(name, options = {}) {
  return shown().map((run) => ({ line: run.lines[name], color: run.color, ...options }));
}

function loadChart() {
  const promised = shown().some((run) => drawn(run.lines.promised));
  const keys = ALONE
    ? [{ text: "arrives", color: "c0" }, { text: "is processed", color: "c2", className: "faint" }]
    : [{ text: "arrives", color: "soft" }];
  if (promised) keys.push({ text: "capacity promised by the decision", color: "soft", className: "thin dashed" });
  const series = ALONE
    ? [
      ...perRun("promised", { color: "soft", className: "thin dashed", stepped: true, loose: true }),
      ...perRun("throughput", { color: "c2", className: "faint", loose: true }),
      ...perRun("load", { color: "c0" }),
    ]
    : [...perRun("promised", { className: "thin dashed", stepped: true, loose: true }), ...perRun("load")];
  return { title: "Load", unit: "/s", scaled: true, height: 210, keys, series, timeUnit, about: "Load in records per second over time" };
}

function fleetChart() {
  const marks = shown().flatMap((run) => run.rows.filter((row) => row.kind !== "hold").map((row) => ({
    at: row.at_s, kind: row.kind, color: ALONE ? row.kind : run.color,
    value: row.kind === "blind" ? null : row.after,
  })));
  const series = ALONE
    ? [
      ...perRun("active", { color: "c2", className: "thin", stepped: true, filled: true }),
      ...perRun("registered", { color: "c3", className: "dotted", stepped: true }),
      ...perRun("requested", { color: "c1", stepped: true }),
    ]
    : [...perRun("active", { className: "thin dotted", stepped: true }), ...perRun("requested", { stepped: true })];
  const keys = ALONE
    ? [{ text: "requested", color: "c1" }, { text: "registered", color: "c3", className: "dotted" }, { text: "active", color: "c2", box: "area" }]
    : [{ text: "requested", color: "soft" }, { text: "active", color: "soft", className: "thin dotted" }];
  return { title: "Fleet", unit: "executors", whole: true, height: 230, least: 2, keys, series, marks, markSize: ALONE ? 5 : 3.5, timeUnit, about: "Executors over time, each decision marked" };
}

// Of several noisy lines only the highest values are drawn; the key says of how long a span.
function worded(text) {
  return (inner) => (ALONE ? text : `${text}, highest of every ${Math.ceil(bucketOf(range, inner))} s`);
}

function delayChart() {
  return {
    title: "Delay", unit: "s", height: 190, limit: DATA.slo_s, limitText: SLO, timeUnit,
    keys: [{ text: worded("age of the oldest waiting record"), color: ALONE ? "c0" : "soft" }],
    series: perRun("delay", { worst: !ALONE }), about: "Delay in seconds over time, against the SLO",
  };
}

function backlogChart() {
  return {
    title: "Backlog", unit: " records", scaled: true, height: 160, timeUnit,
    keys: [{ text: worded("waiting"), color: ALONE ? "c0" : "soft" }],
    series: perRun("backlog", { worst: !ALONE }), about: "Waiting records over time",
  };
}

// Signals by their names: title, unit, what the key says, and the value that is the limit.
const SIGNALS = {
  latency_s: ["Latency", "s", "time of the last batch (Spark) or of the last records inside the job"],
  cpu_fraction: ["CPU", "%", "mean over executors"],
  busy_fraction: ["Busy", "%", "share of time that tasks run"],
  idle_fraction: ["Idle", "%", "share of time that no task runs"],
  backpressured_fraction: ["Backpressure", "%", "share of time that the most affected operator waits for the next one"],
  trigger_fraction: ["Backpressure on Spark: batch duration / trigger interval", "%", "above 100 % batches are late", 1],
};
const MEASURED = Object.keys(SIGNALS).filter((name) => RUNS.some((run) => run.telemetry[name]));

function signalChart(name, index) {
  const [title, unit, text, limit] = SIGNALS[name];
  const runs = shown().filter((run) => run.telemetry[name]);
  const timeless = index < MEASURED.length - 1;
  return {
    title, unit, limit, limitText: "trigger interval", size: unit === "%" ? 0.01 : 1, timeUnit, timeless, height: timeless ? 110 : 126,
    keys: [{ text, color: ALONE ? "c0" : "soft" }], about: `${title} over time`,
    series: runs.map((run) => ({ line: run.telemetry[name], color: run.color, className: ALONE ? "" : "thin" })),
  };
}

// What the cursor says of the signals of a run, in a line.
function signalsAt(run, at) {
  const told = MEASURED.filter((name) => run.telemetry[name]).map((name) => {
    const [title, unit] = SIGNALS[name];
    const value = valueAt(run.telemetry[name], at);
    const word = title.split(" ")[0].toLowerCase();
    return unit === "%" ? `${word} ${value == null ? "–" : Math.round(100 * value)} %` : `${word} ${seconds(value)}`;
  });
  return told.join(" · ");
}

function foresightChart() {
  const given = shown().filter((run) => run.foresight);
  const series = given.flatMap((run) => {
    const { foreseen, came, low, high } = run.foresight;
    const fan = low.at_s.length ? { low, high } : null;
    return [
      { line: foreseen, color: ALONE ? "c1" : run.color, className: "dashed", fan },
      { line: came, color: ALONE ? "c0" : run.color },
    ];
  });
  const spans = [...new Set(given.map((run) => span(run.foresight.horizon_s)))].join(" or ");
  const errors = given.filter((run) => run.foresight.error_fraction != null)
    .map((run) => `${ALONE ? "" : `${run.name} `}${(100 * run.foresight.error_fraction).toFixed(1)} %`);
  const keys = [
    { text: `highest load forecast for the next ${spans}`, color: ALONE ? "c1" : "soft", className: "dashed" },
    { text: "highest that came", color: ALONE ? "c0" : "soft" },
  ];
  if (given.some((run) => run.foresight.low.at_s.length)) keys.push({ text: "forecast range", color: ALONE ? "c1" : "soft", box: "area" });
  const title = errors.length ? `Forecast (typical error ${errors.join(", ")})` : "Forecast";
  return { title, unit: "/s", scaled: true, height: 210, keys, series, timeUnit, about: "Highest load forecast and highest load that came" };
}

function drawShares() {
  shareChart(byId("ecdf").firstElementChild, {
    title: "How long records waited", height: 250, limit: DATA.slo_s, limitText: SLO,
    keys: [{ text: "share of records that waited at most this long", color: ALONE ? "c0" : "soft" }],
    curves: shown().map((run) => ({ ...run.delays, color: run.color })),
    about: "Cumulative share of records by delay",
  });
}

function drawCosts() {
  const hour = 3600;
  const split = shown().some((run) => run.cost.working_s != null);
  const bars = shown().map((run) => {
    const { executor_s, working_s, idle_s, starting_or_leaving_s, peak_fleet_s, peak_executors } = run.cost;
    const parts = working_s == null
      ? [{ value: (executor_s - starting_or_leaving_s) / hour, className: "seg-working" }]
      : [{ value: working_s / hour, className: "seg-working" }, { value: idle_s / hour, className: "seg-idle" }];
    parts.push({ value: starting_or_leaving_s / hour, className: "seg-starting" });
    const name = ALONE ? "" : run.name;
    const text = `${short(executor_s / hour)} h, instead of ${short(peak_fleet_s / hour)} h with ${peak_executors} all the time`;
    return { name, text, parts, total: executor_s / hour, outline: peak_fleet_s / hour, color: run.color };
  });
  const color = ALONE ? "c0" : "soft";
  const hours = (value) => (ALONE ? ` ${short(value / hour)} h` : "");
  const only = RUNS[0].cost;
  const keys = [
    { text: split ? `working${hours(only.working_s)}` : "active", color, box: "seg-working" },
    ...(split ? [{ text: `idle${hours(only.idle_s)}`, color, box: "seg-idle" }] : []),
    { text: `starting or leaving${hours(only.starting_or_leaving_s)}`, color, box: "seg-starting" },
    { text: "a fleet for the peak", color, box: "seg-peak" },
  ];
  barChart(byId("cost").firstElementChild, { title: "Cost", unit: "executor-hours", keys, bars, about: "Executor-hours of each run against a fleet sized for its peak" });
}

function drawAll() {
  const specs = [loadChart(), fleetChart(), delayChart(), backlogChart(), ...MEASURED.map(signalChart)];
  const given = RUNS.some((run) => run.foresight);
  byId("foresight").hidden = !given;
  if (given) specs.push(foresightChart());
  const figures = [...document.querySelectorAll("figure.over-time")];
  charts = specs.map((spec, index) => cursor.listen(timeChart(figures[index], spec, range)));
  drawShares();
  drawCosts();
  byId("unzoom").hidden = range === WHOLE;
}

// The cursor ------------------------------------------------------------------------------------

const cursor = timeCursor(tip, { charts: () => charts, tell, zoom, whole: WHOLE });

function zoom(to) {
  range = to;
  cursor.unpoint();
  drawAll();
}

// The decision to tell of: a move right under the cursor, else what held at that instant.
function decisionAt(run, at) {
  const reach = ((range[1] - range[0]) / Math.max(1, charts[0].inner.right - charts[0].inner.left)) * 6;
  const near = run.rows.filter((row) => row.kind !== "hold" && Math.abs(row.at_s - at) <= reach)
    .sort((a, b) => Math.abs(a.at_s - at) - Math.abs(b.at_s - at))[0];
  if (near) return near;
  const held = run.rows[lastBefore(run.rows.map((row) => row.at_s), at)];
  return held && run.rows_left_out && at > held.until_s + reach ? undefined : held;
}

function tell(at) {
  tip.replaceChildren();
  say("p", "name", when(RUNS[0], at), tip);
  for (const run of shown()) {
    const { load, requested, active, delay, backlog } = run.lines;
    const facts = [
      amount(valueAt(load, at), "/s"),
      `${valueAt(active, at) ?? "–"} of ${valueAt(requested, at) ?? "–"} executors`,
      `delay ${seconds(valueAt(delay, at))}`,
      `${amount(valueAt(backlog, at), "")} waiting`,
    ];
    if (!ALONE) say("p", "name", run.name, tip);
    say("p", "", facts.join(" · "), tip);
    if (MEASURED.length) say("p", "", signalsAt(run, at), tip);
    const row = decisionAt(run, at);
    if (row && (ALONE || row.kind !== "hold")) {
      const since = row.turns > 1 ? ` since ${clock(row.at_s)}` : "";
      say("p", "why", `${move(row)}${since}: ${row.text}`, tip);
    }
  }
}

// The decisions ---------------------------------------------------------------------------------

const KINDS = {
  moves: ["Rescales", (row) => row.kind === "up" || row.kind === "down"],
  up: ["Growing", (row) => row.kind === "up"],
  down: ["Shrinking", (row) => row.kind === "down"],
  refused: ["Refused", (row) => row.kind === "refused"],
  overridden: ["Overridden by a guard", (row) => row.wanted !== row.after],
  hold: ["Holding", (row) => row.kind === "hold"],
  blind: ["Blind", (row) => row.kind === "blind"],
  all: ["All", () => true],
};

function when(run, at) {
  if (!run.begin_s) return clock(at);
  const date = new Date((run.begin_s + at) * 1000).toISOString();
  return ALONE ? `${date.slice(0, 10)} ${date.slice(11, 19)} UTC` : clock(at);
}

function chosenRows() {
  const [, matches] = KINDS[byId("kind").value];
  const word = byId("find").value.trim().toLowerCase();
  const found = shown().flatMap((run) => run.rows.filter(matches).map((row) => ({ run, row })));
  return found
    .filter(({ row }) => !word || `${row.codes.join(" ")} ${row.text}`.toLowerCase().includes(word))
    .sort((a, b) => a.row.at_s - b.row.at_s);
}

function listRows() {
  const found = chosenRows();
  const body = byId("rows");
  body.replaceChildren();
  for (const { run, row } of found.slice(0, shownRows)) {
    const who = say("td", "who");
    say("span", `swatch ${run.color}`, undefined, who);
    who.append(run.name);
    const line = decisionRow(body, row, when(run, row.at_s), when(run, row.until_s), who);
    line.addEventListener("pointerenter", () => cursor.point(row.at_s));
    line.addEventListener("pointerleave", cursor.unpoint);
  }
  const lost = RUNS.reduce((sum, run) => sum + run.rows_left_out, 0);
  const left = lost ? ` ${lost} more ${lost === 1 ? "hold was" : "holds were"} left out to keep the page small.` : "";
  byId("more").textContent = `${Math.min(shownRows, found.length)} of ${found.length} shown; turns in a row that decide the same are one line.${left}`;
  byId("show-more").hidden = found.length <= shownRows;
}

function fillKinds() {
  for (const [name, [text, matches]] of Object.entries(KINDS)) {
    const count = RUNS.reduce((sum, run) => sum + run.rows.filter(matches).length, 0);
    if (!count && name !== "all") continue;
    const option = say("option", "", `${text} (${count})`, byId("kind"));
    option.value = name;
  }
}

// The rest --------------------------------------------------------------------------------------

function addFigures() {
  byId("telemetry").hidden = !MEASURED.length;
  for (const id of ["over-time", "over-time", "over-time", "over-time", ...MEASURED.map(() => "telemetry"), "foresight"])
    say("figure", "over-time", undefined, byId(id));
  say("figure", "", undefined, byId("ecdf"));
  say("figure", "", undefined, byId("cost"));
  say("p", "hint", "Estimated from the age of the oldest waiting record at each turn. Records that still wait at the end count with their age.", byId("ecdf"));
  say("p", "hint", "An executor is paid for from its request until it is gone; it works while its tasks run.", byId("cost"));
}

function addLegend() {
  if (ALONE) return;
  for (const run of RUNS) {
    const button = say("button", "", undefined, byId("legend"));
    button.type = "button";
    say("span", `swatch ${run.color}`, undefined, button);
    button.append(run.name);
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      run.shown = !run.shown;
      button.setAttribute("aria-pressed", String(run.shown));
      drawAll();
      listRows();
    });
  }
}

byId("unzoom").addEventListener("click", () => zoom(WHOLE));
byId("kind").addEventListener("change", () => { shownRows = PAGE; listRows(); });
byId("find").addEventListener("input", () => { shownRows = PAGE; listRows(); });
byId("show-more").addEventListener("click", () => { shownRows += 5 * PAGE; listRows(); });

document.body.classList.toggle("one", ALONE);
byId("legend").hidden = ALONE;
addFigures();
addLegend();
fillKinds();
drawNowAndAtNewWidth(drawAll);
listRows();
