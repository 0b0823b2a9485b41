"""What a run cost in money, on the page and on the terminal, where a price is set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli.app import main
from penstock.core.journal import read_header
from penstock.observe.recording import read_journal


def command(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0


@pytest.fixture
def journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Four executors for an hour, the first ten minutes of which are not scored."""
    config, path = tmp_path / "penstock.toml", tmp_path / "run.jsonl"
    config.write_text('[goal]\nprice = 0.25\ncurrency = "EUR"')
    arguments = ["--policy", "static:4", "--workload", "constant:20k", "--duration", "1h"]
    command(
        ["simulate", *arguments, "--start", "4", "--config", str(config), "--journal", str(path)]
    )
    assert "money                  0.833 EUR" in capsys.readouterr().out
    return path


def test_a_report_takes_the_price_from_the_journal_or_the_command_line(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert read_header(journal).goal["currency"] == "EUR"
    out = journal.with_suffix(".html")
    steps = read_journal(journal).steps
    hours = 4 * (steps[-1].at_s - steps[0].at_s) / 3600.0
    assert hours > 3.8
    for price, each, words in ((), 0.25, "0.250 EUR"), (("--price", "0.5"), 0.5, "0.500 EUR"):
        command(["report", str(journal), "--out", str(out), "--json", *price])
        (row,) = json.loads(capsys.readouterr().out)["journals"]
        assert row["money"] == pytest.approx(hours * each)
        assert f"{words} per executor-hour" in out.read_text()


def test_without_a_price_there_is_no_money(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    command(["simulate", "--policy", "static:4", "--duration", "1h", "--journal", str(path)])
    assert "money" not in capsys.readouterr().out
    command(["report", str(path), "--out", str(tmp_path / "run.html"), "--json"])
    (row,) = json.loads(capsys.readouterr().out)["journals"]
    assert row["money"] is None
    assert "per executor-hour" not in (tmp_path / "run.html").read_text()
