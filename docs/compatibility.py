"""The table of versions in docs/compatibility.md, from the last run of `make test-versions`."""

from __future__ import annotations

from pathlib import Path

from tools.versions import ROWS, Result, Row, read_results

PAGE = Path(__file__).with_name("compatibility.md")
BEGIN = "<!-- versions: written by `make docs` from compatibility.json -->\n"
END = "<!-- versions: end -->\n"
PARTS = ("attach", "up", "down", "sensor", "doctor")


def page() -> str:
    """docs/compatibility.md with the table between its two markers."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"docs/compatibility.md needs the lines {BEGIN}and {END}")
    results = read_results()
    heads = ["PySpark", "Python", "Java", "source", *PARTS, "tried"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(_cells(row, results.get(row.name)))} |" for row in ROWS]
    return f"{before}{begin}\n" + "\n".join(lines) + f"\n\n{end}{after}"


def _cells(row: Row, result: Result | None) -> list[str]:
    facts = result.facts if result else {}
    known = {"pyspark": row.pyspark, "python": row.python, "java": str(row.java or "")} | facts
    versions = [known.get(each, "") for each in ("pyspark", "python", "java", "source")]
    if result is None or result.missing:
        parts = ["not tried"] + [""] * (len(PARTS) - 1)
        return [*versions, *parts, result.missing if result else ""]
    return [*versions, *(_cell(result, part) for part in PARTS), result.tried]


def _cell(result: Result, part: str) -> str:
    seconds = result.parts.get(part)
    if seconds is None:
        return "**failed**"
    return f"yes, {seconds:.1f} s" if seconds else "yes"
