"""The report page and its command: its text is harmless, its file whole, bad input one sentence."""

from __future__ import annotations

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.commands.report import names, report
from penstock.core.errors import ConfigError
from penstock.core.journal import FORMAT, JournalHeader, write_all
from penstock.core.model import Decision, Reason, Receipt, Step
from penstock.observe.report.page import page
from penstock.observe.report.series import PANELS
from tests.observe.report.example_steps import blind, seen, six_hours, turn

# The page ----------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """Checks that elements nest, and keeps what could reach outside."""

    VOID = frozenset({"meta", "link", "input", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.references: list[str] = []
        self.handlers: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "xlink:href"):
                self.references.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()


def embedded(html: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert found is not None
    return json.loads(found[1])


def test_the_page_is_well_formed_and_reaches_for_nothing_outside() -> None:
    for journals in ([("hpa", six_hours(50))], [("hpa", six_hours(50)), ("ds2", six_hours(40))]):
        html = page(journals, title="A night", slo_s=10.0, note="on a small cluster")
        outline = Outline(html)
        assert outline.open == []
        assert (outline.references, outline.handlers) == (["data:,"], [])
        assert "://" not in html
        assert "default-src 'none'" in html
        assert "on a small cluster" in html


def test_text_from_a_journal_cannot_become_markup() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & <!--"
    step = Step(0.0, seen(0.0, 3), Decision.of(4, Reason(evil, evil)), Receipt(False, evil))
    harmless = Outline(page([("a", [turn(0.0)]), ("b", [turn(0.0)])], title="t", slo_s=10.0))
    html = page([(evil, [step]), ("b", [turn(0.0)])], title=evil, slo_s=10.0, note=evil)
    outline = Outline(html)
    assert outline.counts == harmless.counts | {"p": harmless.counts["p"] + 1}
    assert "<script>alert" not in html
    assert "<img" not in html
    run = embedded(html)["runs"][0]
    assert run["name"] == evil
    assert run["rows"][0]["text"] == f"{evil}; refused: {evil}"


def test_the_script_sets_text_and_never_markup() -> None:
    html = page([("hpa", [turn(0.0)])], title="t", slo_s=10.0)
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in html


def test_six_hours_at_10_s_make_a_page_below_2_mb_in_below_2_s() -> None:
    steps = six_hours()
    begin = time.perf_counter()
    html = page([("penstock", steps)], title="six hours", slo_s=10.0)
    assert time.perf_counter() - begin < 2.0
    assert len(html.encode()) < 2_000_000


def test_a_long_run_leaves_out_holds_rather_than_grow_without_bound() -> None:
    html = page([("penstock", six_hours(15_000))], title="two days", slo_s=10.0)
    assert len(html.encode()) < 2_000_000
    assert embedded(html)["runs"][0]["rows_left_out"] > 0


def test_several_journals_stand_side_by_side_each_in_its_colour() -> None:
    journals = [(name, six_hours(20)) for name in ("hpa", "ds2", "penstock")]
    html = page(journals, title="three", slo_s=10.0)
    assert [run["name"] for run in embedded(html)["runs"]] == ["hpa", "ds2", "penstock"]
    for index, name in enumerate(("hpa", "ds2", "penstock")):
        assert f'<span class="swatch c{index}"></span>{name}</th>' in html


def test_a_run_of_which_nothing_was_seen_still_makes_a_page() -> None:
    html = page([("blind", [blind(0.0), blind(10.0)])], title="t", slo_s=10.0)
    assert html.count("not measured") >= 2
    assert embedded(html)["runs"][0]["account"]["blind_turns"] == 2


def test_telemetry_is_drawn_of_what_the_journal_has_and_of_nothing_else() -> None:
    steps = [
        turn(0.0, latency_s=3.0, trigger_interval_s=2.0),
        blind(10.0),
        turn(20.0, latency_s=1.0, trigger_interval_s=2.0),
    ]
    html = page([("hpa", steps), ("bare", [turn(0.0)])], title="t", slo_s=10.0)
    measured, bare = (run["telemetry"] for run in embedded(html)["runs"])
    assert measured == {
        "latency_s": {"at_s": [0.0, 10.0, 20.0], "values": [3, None, 1]},
        "trigger_fraction": {"at_s": [0.0, 10.0, 20.0], "values": [1.5, None, 0.5]},
    }
    assert bare == {}


def test_every_signal_with_a_panel_has_a_title_in_the_script() -> None:
    html = page([("hpa", [turn(0.0)])], title="t", slo_s=10.0)
    assert [name for name in PANELS if f"  {name}: [" not in html] == []


@pytest.mark.parametrize(
    ("journals", "slo_s", "sentence"),
    [
        ([], 10.0, "there is no journal to report on"),
        ([("a", [])], 10.0, "journal a holds no step"),
        ([("a", [turn(0.0)])], 0.0, "the SLO must be positive, not 0 s"),
        ([("a", [turn(0.0)])] * 9, 10.0, "at most 8 journals fit on one page, not 9"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_sentence(
    journals: list[tuple[str, list[Step]]], slo_s: float, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        page(journals, title="t", slo_s=slo_s)


# The command -------------------------------------------------------------------------------------


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "night.jsonl"
    facts = {"policy": "hpa", "workload": "sine", "engine": "micro-batch"}
    write_all(path, six_hours(60), JournalHeader.of(facts))
    return path


def test_the_command_writes_a_page_and_says_where(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "night.html"
    assert report(journal, out=out) == 0
    assert "<title>hpa · sine · micro-batch</title>" in out.read_text(encoding="utf-8")
    assert "night.html" in capsys.readouterr().out


def test_the_command_tells_its_figures_as_json(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report(journal, out=tmp_path / "night.html", slo=3.0, json=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["slo_s"], printed["journals"][0]["name"]) == (3.0, "hpa")
    assert printed["journals"][0]["account"]["turns"] == 60
    assert 0.0 < printed["journals"][0]["account"]["late_fraction"] < 1.0


def test_journals_of_one_policy_are_told_apart_by_their_files(
    journal: Path, tmp_path: Path
) -> None:
    other, nameless = tmp_path / "day.jsonl", tmp_path / "third.jsonl"
    write_all(other, [turn(0.0)], JournalHeader.of({"policy": "hpa"}))
    write_all(nameless, [turn(0.0)])
    assert names([journal, other, nameless]) == ["hpa (night)", "hpa (day)", "third"]
    assert names([journal, journal]) == [str(journal), str(journal)]


def test_bad_input_is_one_sentence_and_leaves_no_page(journal: Path, tmp_path: Path) -> None:
    empty, old, bare = tmp_path / "empty", tmp_path / "old", tmp_path / "bare"
    empty.write_text("")
    old.write_text(json.dumps({"format": FORMAT, "version": 99}) + "\n")
    write_all(bare, [])
    out = tmp_path / "page.html"
    cases: list[tuple[tuple[Path, ...], dict[str, Any], str]] = [
        ((), {}, "report needs at least one journal"),
        ((tmp_path / "none",), {}, "cannot read journal .*none: No such file"),
        ((empty,), {}, "journal .*empty is empty"),
        ((old,), {}, "has version 99, this Penstock reads version 1"),
        ((journal, bare), {}, "journal .*bare has no decision"),
        ((journal,), {"out": journal}, "is one of the journals"),
    ]
    for journals, options, sentence in cases:
        with pytest.raises(ConfigError, match=sentence):
            report(*journals, **{"out": out, **options})
    assert not out.exists()
