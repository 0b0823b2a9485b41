"""The command line as a user meets it: output, JSON, exit codes, bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import main
from penstock.core.journal import read_header, read_steps

QUICK = ("--duration", "30min", "--warmup", "5min")


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process, as the console script does."""

    def run(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        captured = capsys.readouterr()
        return Result(int(end.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def journal(penstock: Any, tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    load = "constant:20k for 10min then constant:90k"
    assert penstock("simulate", "--policy", "ds2", "--workload", load, *QUICK, "--journal",
                    str(path)).code == 0  # fmt: skip
    return path


def test_simulate_prints_every_move_with_its_reason_and_then_the_score(penstock: Any) -> None:
    load = "constant:20k for 10min then constant:90k"
    result = penstock("simulate", "--policy", "ds2", "--workload", load, *QUICK)
    assert result.code == 0
    moves = [line for line in result.out.splitlines() if "→" in line]
    assert moves
    assert all("executors" in line for line in moves)
    assert "executor-hours" in result.out
    assert "late (> 10 s)" in result.out


def test_simulate_gives_its_score_as_json(penstock: Any) -> None:
    score = penstock("simulate", "--policy", "static:4", "--workload", "constant:20k", *QUICK,
                     "--json").json()  # fmt: skip
    # 25 scored minutes of 4 executors, which carry 20 k/s with ease.
    assert score["executor_hours"] == pytest.approx(4 * 25 / 60)
    assert score["late_fraction"] == 0.0
    assert score["rescales"] == 0


def test_the_same_seed_gives_the_same_run_and_another_does_not(penstock: Any) -> None:
    def score(seed: str) -> Any:
        return penstock("simulate", "--policy", "hpa", "--seed", seed, *QUICK, "--json").json()

    assert score("1") == score("1")
    assert score("1") != score("2")


def test_compare_gives_a_row_per_run_with_all_columns(penstock: Any) -> None:
    rows = penstock(
        "compare", "--policy", "hpa,static:12", "--policy", "ds2", "--workload", "constant:50k",
        "--engine", "micro-batch", "continuous", "--seeds", "1,2", *QUICK, "--json",
    ).json()  # fmt: skip
    assert len(rows) == 3 * 2 * 2
    assert set(rows[0]) == {
        "policy", "workload", "engine", "seed", "executor_hours", "mean_executors", "p50_s",
        "p95_s", "p99_s", "late_fraction", "rescales", "moved_executors", "cost", "regret",
    }  # fmt: skip
    assert {row["policy"] for row in rows} == {"hpa", "static:12", "ds2"}
    assert {(row["engine"], row["seed"]) for row in rows} == {
        ("micro-batch", 1), ("micro-batch", 2), ("continuous", 1), ("continuous", 2),
    }  # fmt: skip


def test_compare_ranks_by_cost_and_prints_its_prices(penstock: Any) -> None:
    result = penstock("compare", "--policy", "static:4", "static:12", "--workload",
                      "constant:20k", *QUICK)  # fmt: skip
    lines = [line.split() for line in result.out.splitlines() if "static" in line]
    assert [line[1] for line in lines] == ["static:4", "static:12"]
    assert "cost = executor-hours x 1 + late fraction x 10" in result.out


def test_one_process_and_two_give_the_same_rows(penstock: Any) -> None:
    common = ("compare", "--policy", "hpa,ds2", "--seeds", "1..2", *QUICK, "--json", "--processes")
    assert penstock(*common, "1").json() == penstock(*common, "2").json()


def test_explain_tells_decisions_and_filters_them(penstock: Any, journal: Path) -> None:
    everything = penstock("explain", str(journal))
    assert everything.code == 0
    assert "[" in everything.out.splitlines()[0]
    rescales = penstock("explain", str(journal), "--kind", "rescale")
    assert all("→" in line for line in rescales.out.splitlines()[:-1])
    late = penstock("explain", str(journal), "--since", "20min", "--json").json()
    assert min(step["at_s"] for step in late) >= 1200.0
    cooled = penstock("explain", str(journal), "--code", "cooldown", "--json").json()
    assert all("cooldown" in [r["code"] for r in s["decision"]["reasons"]] for s in cooled)


def test_explain_ends_with_one_when_nothing_matches(penstock: Any, journal: Path) -> None:
    assert penstock("explain", str(journal), "--code", "no_such_code").code == 1


def test_a_journal_replays_to_the_same_decisions(penstock: Any, journal: Path) -> None:
    result = penstock("replay", str(journal))
    assert (result.code, "differs at 0 of" in result.out) == (0, True)


def test_another_policy_differs_on_replay(penstock: Any, journal: Path) -> None:
    result = penstock("replay", str(journal), "--policy", "static:3", "--json")
    assert result.code == 1
    assert {difference["replayed"]["target_executors"] for difference in result.json()} == {3}


def test_policies_lists_all_and_explains_one(penstock: Any) -> None:
    assert "backlog_threshold" in penstock("policies").out
    assert "The rule:" in penstock("policies", "hpa").out
    facts = {each["policy"]: each for each in penstock("policies", "--json").json()}
    assert facts["static"]["parameters"]["executors"] == 12


def test_init_writes_settings_that_simulate_takes(penstock: Any, tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    assert penstock("init", str(path), "--policy", "static").code == 0
    text = path.read_text().replace("# executors = 12", "executors = 3")
    path.write_text(text.replace("# max_executors = 16", "max_executors = 2"))
    score = penstock("simulate", "--config", str(path), "--workload", "constant:5k", *QUICK,
                     "--json").json()  # fmt: skip
    assert score["mean_executors"] == pytest.approx(2.0)


@pytest.mark.parametrize("policy", ["hpa", "ds2", "thresholds", "queueing"])
def test_the_settings_of_every_kind_of_policy_can_be_written(
    penstock: Any, tmp_path: Path, policy: str
) -> None:
    path = tmp_path / "penstock.toml"
    assert penstock("init", str(path), "--policy", policy, "--json").json()["policy"] == policy


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
    "short run": (("simulate", "--duration", "60s"), "not longer than the warm-up"),
    "start beyond": (("simulate", "--start", "99"), "--start must be between 1 and 16, not 99"),
    "bad slo": (("simulate", "--slo", "-1"), "slo_s must be finite and not negative"),
    "live, but how long": (("compare", "--live", "--duration", "2h"), "--live keeps its runs"),
    "live, but no oracle": (("compare", "--live", "--no-regret"), "--live keeps its runs"),
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


def test_a_journal_of_another_run_is_replaced_whole(penstock: Any, journal: Path) -> None:
    assert penstock("simulate", "--policy", "static:3", *QUICK, "--journal", str(journal)).code == 0
    assert read_header(journal).run["policy"] == "static:3"
    assert all(step.decision.target_executors == 3 for step in read_steps(journal))


def test_help_is_quick_because_it_loads_no_engine() -> None:
    code = (
        "import sys; from penstock.cli.app import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "slow = {'numpy', 'pyspark', 'penstock.policies', 'penstock.simulation'}\n"
        "heavy = slow & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "simulate" in result.stdout


def test_importing_penstock_loads_neither_spark_nor_numpy() -> None:
    code = "import sys, penstock; sys.exit(bool({'numpy', 'pyspark'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_an_interrupted_comparison_ends_its_processes(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "penstock", "compare", "--seeds", "1..50", "--duration", "24h"],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        run.wait(timeout=6)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGINT)
    run.communicate(timeout=60)
    assert run.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)
