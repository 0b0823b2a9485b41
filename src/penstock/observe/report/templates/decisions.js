// Decisions in words and as rows of a table, the same on every page.

function move(row) {
  if (row.kind === "blind") return "blind";
  const wanted = row.wanted === row.after ? "" : ` (wanted ${row.wanted})`;
  const sign = row.kind === "hold" ? `${row.after} ${row.after === 1 ? "stays" : "stay"}` : `${row.before} → ${row.after}`;
  return `${sign}${wanted}${row.kind === "refused" ? ", refused" : ""}`;
}

function decisionRow(body, row, at, until, who) {
  const line = say("tr", "", undefined, body);
  say("td", "", at, line);
  if (who) line.append(who);
  say("td", `move ${row.kind}`, move(row), line);
  say("td", "", amount(row.load_rps, "/s"), line);
  say("td", "", seconds(row.delay_s), line);
  const why = say("td", "", row.text, line);
  const turns = row.turns > 1 ? `, ${row.turns} turns until ${until}` : "";
  say("span", "code", ` ${row.codes.join(", ")}${turns}`, why);
  return line;
}
