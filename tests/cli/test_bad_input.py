"""Bad input gets one sentence and exit code 2, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.journal import read_header, read_steps
from tests.cli.conftest import QUICK

BAD = {
    "unknown policy": (("simulate", "--policy", "hpaa"), "did you mean 'hpa'?"),
    "unknown option": (("simulate", "--policy", "static:executor=3"), "did you mean 'executors'?"),
    "unknown workload": (("simulate", "--workload", "sinus"), "did you mean 'sine'?"),
    "unknown engine": (("compare", "--engine", "spark"), "unknown engine 'spark'"),
    "unknown fault": (
        ("simulate", "--fault", "executor_last:at=1h"),
        "did you mean 'executor_lost'",
    ),
    "unknown flag": (("simulate", "--polcy", "hpa"), "--policy"),
    "unknown command": (("simulat",), "simulat"),
    "wrong type": (("simulate", "--policy", "static:many"), "executors"),
    "wrong range": (("simulate", "--policy", "static:0"), "at least 1"),
    "min above max": (("simulate", "--min", "9", "--max", "3"), "max_executors must be at least"),
    "negative rate": (("simulate", "--workload", "constant:-5"), "-5"),
    "negative dip": (("simulate", "--workload", "sine:mean=1k,amplitude=5k"), "negative"),
    "no such trace": (("simulate", "--workload", "trace:nowhere.csv"), "nowhere.csv"),
    "bad seeds": (("compare", "--seeds", "many"), "--seeds must be whole numbers"),
    "bad duration": (("simulate", "--duration", "soon"), "--duration must be a number"),
    "short run": (
        ("simulate", "--duration", "60s"),
        "1min is not longer than the warm-up of 10min",
    ),
    "start beyond": (("simulate", "--start", "99"), "--start must be between 1 and 16, not 99"),
    "negative slo": (("simulate", "--slo", "-1"), "--slo must be greater than 0, not '-1'"),
    "no slo": (("simulate", "--slo", "0"), "--slo must be greater than 0, not '0'"),
    "no number": (("simulate", "--play", "nan"), "--play must be a number"),
    "negative seed": (("simulate", "--seed", "-1"), "--seed must be a whole number of at least 0"),
    "broken seed": (("simulate", "--seed", "1.5"), "--seed must be a whole number of at least 0"),
    "negative seeds": (("compare", "--seeds", "-1"), "--seeds must be whole numbers"),
    "million seeds": (("compare", "--seeds", "1..1000000"), "--seeds must be at most 10000"),
    "many runs": (("compare", "--seeds", "1..9000"), "runs are too many at once: at most 100000"),
    "broken bound": (("compare", "--max", "1.5"), "--max must be a whole number of at least 1"),
    "huge fleet": (("simulate", "--max", "1000000"), "at most 10000, not 1000000"),
    "huge oracle": (("compare", "--max", "1000", "--duration", "24h"), "needs about 26 GB"),
    "past duration": (("simulate", "--duration", "-1h"), "--duration must be at least 1s"),
    "huge duration": (("simulate", "--duration", "1e9h"), "--duration must be at most 31d"),
    "no float": (("simulate", "--duration", "1e300h"), "--duration must be at most 31d"),
    "beyond float": (("simulate", "--duration", "1e999h"), "--duration must be a finite number"),
    "many processes": (("compare", "--processes", "99999"), "from 1 to 1024, not '99999'"),
    "short comparison": (("compare", "--duration", "60s"), "is not longer than the warm-up"),
    "run without a script": (("run", "--max", "4", "nowhere.py"), "there is no script nowhere.py"),
    "run in no time": (("run", "--slo", "0s", "job.py"), "--slo must be greater than 0"),
    "no page": (("compare", *QUICK, "--html", "no/where.html"), "cannot write no/where.html"),
    "no table": (("compare", *QUICK, "--out", "no/where.csv"), "cannot write no/where.csv"),
    "no report": (("report", "a.jsonl", "--out", "no/where.html"), "cannot write no/where.html"),
    "seeds backwards": (("compare", "--seeds", "5..3"), "ranges like 1..5, not '5..3'"),
    "no journal": (("explain", "nowhere.jsonl"), "cannot read journal nowhere.jsonl"),
    "no settings": (("simulate", "--config", "nowhere.toml"), "cannot read nowhere.toml"),
    "no place": (
        ("simulate", *QUICK, "--journal", "no/where.jsonl"),
        "cannot write no/where.jsonl",
    ),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_gets_one_sentence_and_exit_code_2(
    penstock: Any, arguments: tuple[str, ...], words: str
) -> None:
    result = penstock(*arguments)
    assert result.code == 2
    assert words in result.err
    assert len(result.err.strip().splitlines()) == 1
    assert "Traceback" not in result.err


TRACES = {
    "empty": ("", "empty"),
    "unordered": ("time,rate\n0,5\n10,6\n5,7\n", "line 4"),
    "negative": ("time,rate\n0,5\n10,-6\n", "line 3"),
    "not a number": ("time,rate\n0,5\n10,nan\n", "line 3"),
    "one row": ("time,rate\n0,5\n", "2"),
}


@pytest.mark.parametrize(("content", "words"), TRACES.values(), ids=TRACES.keys())
def test_bad_traces_are_refused_with_their_place(
    penstock: Any, tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "load.csv"
    path.write_text(content)
    result = penstock("simulate", "--workload", f"trace:{path}")
    assert (result.code, words in result.err) == (2, True), result.err


SETTINGS = {
    "unknown table": ("[limit]\n", "did you mean 'limits'?"),
    "unknown key": ("[limits]\ncooldown = 5\n", "did you mean 'cooldown_s'?"),
    "wrong type": ("[limits]\nmax_executors = 'many'\n", "max_executors = 'many'"),
    "wrong range": ("[policy]\nname = 'static'\nexecutors = 0\n", "executors = 0"),
    "min above max": ("[limits]\nmin_executors = 9\nmax_executors = 3\n", "at least min_executors"),
    "no toml": ("[limits\n", "is not valid TOML"),
    "unknown policy": ("[policy]\nname = 'hpaa'\n", "did you mean 'hpa'?"),
}


@pytest.mark.parametrize(("content", "words"), SETTINGS.values(), ids=SETTINGS.keys())
def test_bad_settings_are_refused_with_their_place(
    penstock: Any, tmp_path: Path, content: str, words: str
) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(content)
    result = penstock("simulate", "--config", str(path))
    assert (result.code, words in result.err, str(path) in result.err) == (2, True, True), (
        result.err
    )


def test_a_failed_run_leaves_no_journal_behind(penstock: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert penstock("simulate", "--duration", "60s", "--journal", str(path)).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_exists_is_replaced_only_by_force(penstock: Any, journal: Path) -> None:
    again = ("simulate", "--policy", "static:3", *QUICK, "--journal", str(journal))
    before = journal.read_bytes()
    refused = penstock(*again)
    assert (refused.code, journal.read_bytes()) == (2, before)
    assert "exists already: name another file, or add --force" in refused.err
    assert penstock(*again, "--force").code == 0
    assert read_header(journal).run["policy"] == "static:3"
    assert all(step.decision.target_executors == 3 for step in read_steps(journal))


@pytest.mark.timeout(60)
def test_what_cannot_be_written_is_refused_before_the_simulation(penstock: Any) -> None:
    # A month under the slowest policy would take an hour.
    for option in ("--journal", "/proc/run.jsonl"), ("--warmup", "31d"):
        assert penstock("simulate", "--duration", "30d", *option).code == 2
