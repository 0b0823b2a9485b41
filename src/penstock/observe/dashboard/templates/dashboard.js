// The live page: connects, and draws what comes. It asks for nothing but the next events.

const byId = (id) => document.getElementById(id);
const tip = byId("tip");
const SILENT_MS = 20000;
const STATES = { "": "is read from a journal", acts: "sizes the fleet", "recommends only": "recommends only", paused: "is paused", failed: "has failed: the fleet stays as it is" };
let jobs = [];
let job = null;
let charts = [];
let waits = false;
let source = null;
let heard = Date.now();
let told = "";

const percent = (value, digits = 0) => (value == null ? "–" : `${(100 * value).toFixed(digits)} %`);
const horizon = () => span(60 * Math.max(1, Math.round(job.horizon_s / 60)));
const few = (value) => (value >= 100 ? String(Math.round(value)) : short(value));
const range = () => [Math.max(job.lines.load.at_s[0] ?? 0, job.now_s - Number(byId("span").value)), job.now_s + job.horizon_s + 1];
const wall = (at) => new Date((job.begin_s + at) * 1000).toISOString();

// Charts count from midnight (UTC) of the day on which a live run began, others from its start.
function when(at) {
  if (!job.begin_s) return clock(at);
  const today = wall(job.now_s).slice(0, 10) === wall(at).slice(0, 10);
  return today ? wall(at).slice(11, 19) : `${wall(at).slice(5, 10)} ${wall(at).slice(11, 19)}`;
}

// The connection --------------------------------------------------------------------------------

const chosen = () => decodeURIComponent(location.hash.slice(1));

function connect() {
  if (source) source.close();
  source = new EventSource(`events?job=${encodeURIComponent(chosen())}`);
  source.addEventListener("jobs", (event) => { jobs = JSON.parse(event.data); listJobs(); });
  source.addEventListener("job", (event) => { show(JSON.parse(event.data)); });
  source.addEventListener("beat", () => { heard = Date.now(); sayConnection(true); });
  source.addEventListener("error", () => {
    sayConnection(false);
    if (source.readyState === EventSource.CLOSED) check();
  });
}

// A server that answers and does not know us wants a login; one that does not answer is asked again.
async function check() {
  try {
    const answer = await fetch("data", { method: "HEAD" });
    if (answer.status === 401) location.reload();
  } catch {
    // The next attempt tells.
  }
}

function sayConnection(alive) {
  const text = alive ? "live" : "connection lost, trying again";
  const place = byId("connection");
  document.body.classList.toggle("lost-job", !alive);
  place.classList.toggle("lost", !alive);
  if (place.textContent !== text) place.textContent = text;
}

setInterval(() => {
  if (Date.now() - heard > SILENT_MS || source.readyState === EventSource.CLOSED) {
    sayConnection(false);
    heard = Date.now() - SILENT_MS / 2;
    connect();
  }
}, 2000);

// The parts of the page -------------------------------------------------------------------------

function tile(list, name, value, detail, className) {
  const box = say("div", "", undefined, list);
  say("dt", "", name, box);
  const shown = say("dd", className || "", value, box);
  if (detail) say("small", "", detail, shown);
}

function listJobs() {
  const many = jobs.length > 1;
  byId("jobs").hidden = !many;
  const unknown = jobs.length > 0 && chosen() !== "" && !jobs.some((one) => one.id === chosen());
  byId("empty").hidden = !unknown && jobs.some((one) => one.at_s != null);
  byId("empty").textContent = unknown ? `There is no job ${chosen()} here.` : jobs.length ? "The first turn has not come yet." : "There is no journal yet.";
  const body = byId("job-rows");
  body.replaceChildren();
  const current = job ? job.id : chosen();
  for (const one of many ? jobs : []) {
    const line = say("tr", "", undefined, body);
    line.setAttribute("aria-current", String(one.id === current));
    const link = say("a", "", one.name, say("th", "", undefined, line));
    link.href = `#${encodeURIComponent(one.id)}`;
    say("td", "", one.state || "journal", line);
    say("td", "", amount(one.arrival_rps, "/s"), line);
    say("td", "", one.fleet ? `${one.fleet.registered} of ${one.fleet.target}` : "–", line);
    say("td", one.delay_s > one.slo_s ? "late-value" : "", seconds(one.delay_s), line);
    say("td", "", one.limit, line);
    say("td", "", one.at_s == null ? "–" : one.at_s > 1e8 ? new Date(1000 * one.at_s).toISOString().slice(0, 19).replace("T", " ") : clock(one.at_s), line);
  }
  if (job) showTiles();
  else byId("title").textContent = document.title = "Penstock";
}

function showTiles() {
  const one = jobs.find((each) => each.id === job.id) || {};
  byId("title").textContent = one.name || "Penstock";
  document.title = `${one.name || "job"} · Penstock`;
  const list = byId("tiles");
  list.replaceChildren();
  const fleet = one.fleet || {};
  tile(list, "load", amount(one.arrival_rps, "/s"), job.outlook ? `${amount(job.outlook.load.at(-1), "/s")} expected in ${horizon()}` : "no forecast now");
  tile(list, "executors", `${fleet.active ?? "–"} of ${fleet.target ?? "–"}`, `bounds ${job.min_executors} to ${job.max_executors}`);
  tile(list, "delay", seconds(one.delay_s), `SLO ${seconds(job.slo_s)}`, one.delay_s > job.slo_s ? "late-value" : "");
  tile(list, "backlog", amount(one.backlog_records, ""), "records wait");
  tile(list, "policy", job.policy || "–", STATES[one.state] ?? one.state);
  tile(list, "last turn", when(job.now_s), job.begin_s ? "UTC" : "since the start");
  byId("limit-text").replaceChildren(say("b", "", job.limit.name), ` – ${job.limit.text}`);
}

const line = (at_s, values) => ({ at_s, values });

function specs() {
  const { lines, outlook } = job;
  const shared = { timeUnit: job.begin_s ? "UTC" : "time", now: shift(job.now_s) };
  const ahead = outlook && outlook.at_s.map(shift);
  const moved = (one) => line(one.at_s.map(shift), one.values);
  const fan = ahead && { line: line(ahead, outlook.load), color: "c1", className: "dashed", fan: { low: line(ahead, outlook.low), high: line(ahead, outlook.high) } };
  const plan = ahead && outlook.executors.length && { line: line(ahead, outlook.executors), color: "c1", className: "dashed", stepped: true };
  const marks = job.rows.filter((row) => row.kind !== "hold").map((row) => ({ at: shift(row.at_s), kind: row.kind, color: row.kind, value: row.kind === "blind" ? null : row.after }));
  const [first] = range();
  const tops = marks.filter((mark) => mark.at >= shift(first)).map((mark) => 1.1 * mark.value);
  return [
    { ...shared, title: "Load", unit: "/s", scaled: true, height: 210, about: about("Load in records per second", lines.load, "/s"),
      keys: [{ text: "arrives", color: "c0" }, { text: "is processed", color: "c2", className: "faint" }, ...(fan ? [{ text: "forecast", color: "c1", className: "dashed" }, { text: "8 of 10 loads", color: "c1", box: "area" }] : [])],
      series: [{ line: moved(lines.throughput), color: "c2", className: "faint", loose: true }, { line: moved(lines.load), color: "c0" }, ...(fan ? [fan] : [])] },
    { ...shared, title: "Fleet", unit: "executors", whole: true, height: 210, least: Math.max(2, ...tops), marks, about: about("Executors", lines.active, " executors"),
      keys: [{ text: "requested", color: "c1" }, { text: "registered", color: "c3", className: "dotted" }, { text: "active", color: "c2", box: "area" }, ...(plan ? [{ text: "planned", color: "c1", className: "dashed" }] : [])],
      series: [{ line: moved(lines.active), color: "c2", className: "thin", stepped: true, filled: true }, { line: moved(lines.registered), color: "c3", className: "dotted", stepped: true }, { line: moved(lines.requested), color: "c1", stepped: true }, ...(plan ? [plan] : [])] },
    { ...shared, title: "Delay", unit: "s", height: 170, limit: job.slo_s, limitText: `SLO ${short(job.slo_s)} s`, about: about("Delay in seconds, against the SLO", lines.delay, " s"),
      keys: [{ text: "age of the oldest waiting record", color: "c0" }], series: [{ line: moved(lines.delay), color: "c0" }] },
    { ...shared, title: "Backlog", unit: " records", scaled: true, height: 150, about: about("Waiting records", lines.backlog, " records"),
      keys: [{ text: "waiting", color: "c0" }], series: [{ line: moved(lines.backlog), color: "c0" }] },
  ];
}

const shift = (at) => at + (job.begin_s % 86400);
const about = (text, one, unit) => `${text} over time; now ${amount(one.values.at(-1), unit)}`;

function drawCharts() {
  if (!job) return;
  waits = !tip.hidden;
  if (waits) return;
  dayLength = job.begin_s ? 86400 : Infinity;
  const figures = [...document.querySelectorAll("#over-time figure")];
  const focused = figures.findIndex((one) => one.contains(document.activeElement));
  charts = specs().map((spec, index) => cursor.listen(timeChart(figures[index], spec, range().map(shift))));
  if (focused >= 0) charts[focused].root.focus({ preventScroll: true });
}

const cursor = timeCursor(tip, { charts: () => charts, tell, after: () => { if (waits) drawCharts(); } });

function tell(shifted) {
  const at = shifted - shift(0);
  const { load, requested, active, delay, backlog } = job.lines;
  tip.replaceChildren();
  say("p", "name", when(at), tip);
  if (at <= job.now_s) {
    say("p", "", `${amount(valueAt(load, at), "/s")} · ${valueAt(active, at) ?? "–"} of ${valueAt(requested, at) ?? "–"} executors · delay ${seconds(valueAt(delay, at))} · ${amount(valueAt(backlog, at), "")} waiting`, tip);
    const row = job.rows[lastBefore(job.rows.map((one) => one.at_s), at)];
    if (row) say("p", "why", `${move(row)}: ${row.text}`, tip);
  } else if (job.outlook) {
    const { at_s, load: mean, low, high, executors } = job.outlook;
    const read = (values) => valueAt(line(at_s, values), at);
    say("p", "", `expected: ${amount(read(mean), "/s")}, between ${amount(read(low), "/s")} and ${amount(read(high), "/s")}${executors.length ? ` · ${read(executors)} executors planned` : ""}`, tip);
  }
}

function showHeat(id, rows) {
  const body = byId(id);
  body.replaceChildren();
  if (!rows.length) say("td", "hint", "not measured", say("tr", "", undefined, body));
  for (const row of rows) {
    const place = say("tr", "", undefined, body);
    say("th", "", row.name, place).setAttribute("scope", "row");
    const count = Math.max(1, row.values.length);
    const strip = draw("svg", { viewBox: `0 0 ${count} 10`, preserveAspectRatio: "none", "aria-hidden": "true" }, say("td", "strip", undefined, place));
    row.values.forEach((value, at) => {
      if (value == null) draw("rect", { x: at, y: 4, width: 1.02, height: 2, class: "gap" }, strip);
      else draw("rect", { x: at, y: 0, width: 1.02, height: 10, opacity: Math.min(1, 0.06 + 0.94 * value) }, strip);
    });
    const last = row.values.findLast((value) => value != null);
    say("td", "value", percent(last), place);
    say("td", "more", row.text, place);
  }
}

function showSizes() {
  const next = job.rows.at(-1).after;
  const body = byId("sizes");
  body.replaceChildren();
  body.closest("table").hidden = !job.sizes.length;
  byId("sizes-hint").textContent = job.sizes.length
    ? `What each size would cost and how late records would be in the next ${horizon()}, if the fleet had it all the time.`
    : "The policy did not compare sizes at the last turn.";
  document.body.classList.toggle("unpriced", !job.sizes.some((one) => one.money));
  for (const one of job.sizes) {
    const place = say("tr", "", undefined, body);
    place.setAttribute("aria-current", String(one.executors === next));
    say("th", "", one.executors === next ? `${one.executors} (chosen)` : String(one.executors), place);
    say("td", "", short(one.executor_hours), place);
    say("td", "money", one.money, place);
    say("td", one.late_fraction > 0.01 ? "late-value" : "", percent(one.late_fraction, 1), place);
  }
}

function showAccount() {
  const { paid_executor_hours, saved_executor_hours, paid, saved, records, late_fraction, since_s, recommended } = job.account;
  const since = since_s > 1e8 ? `${new Date(1000 * since_s).toISOString().slice(0, 19).replace("T", " ")} UTC` : clock(since_s);
  byId("account-hint").textContent = `Since ${since}, as far as this page knows the job.${recommended && ` In mode recommend: ${recommended}.`}`;
  const list = byId("account");
  list.replaceChildren();
  const whole = paid_executor_hours + saved_executor_hours;
  tile(list, "paid", paid || `${few(paid_executor_hours)} h`, paid ? `${few(paid_executor_hours)} executor-hours` : "executor-hours");
  tile(list, "saved", saved || `${few(saved_executor_hours)} h`, `${whole ? percent(saved_executor_hours / whole) : "–"} less than ${job.max_executors} all the time`);
  tile(list, "late", percent(late_fraction, 2), `of ${amount(records, "")} records`, late_fraction > 0.01 ? "late-value" : "");
}

function showRows() {
  const text = JSON.stringify(job.rows);
  if (text === told) return;
  told = text;
  const body = byId("rows");
  body.replaceChildren();
  for (const row of [...job.rows].reverse()) decisionRow(body, row, when(row.at_s), when(row.until_s));
  const last = job.rows.at(-1);
  if (last.kind !== "hold") byId("news").textContent = `${move(last)}: ${last.text}`;
}

function show(view) {
  job = view;
  byId("job").hidden = !job;
  listJobs();
  if (!job) return;
  drawCharts();
  showHeat("executors", job.executors);
  showHeat("stages", job.stages);
  showSizes();
  showAccount();
  showRows();
}

byId("span").addEventListener("change", drawCharts);
addEventListener("hashchange", connect);
drawNowAndAtNewWidth(drawCharts);
connect();
