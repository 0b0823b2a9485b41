"""The command line as a user meets it: output, JSON, exit codes, bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import options
from penstock.cli.app import app, main
from penstock.core.journal import read_header, read_steps
from penstock.policies import POLICIES
from penstock.settings.toml import parse

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


def test_jobs_lists_all_explains_one_and_says_what_spark_cannot_express(penstock: Any) -> None:
    listed = penstock("jobs").out
    assert "images-recognise" in listed
    assert "q6: the average of the last ten winning bids" in listed
    assert "mapInPandas" in penstock("jobs", "images-recognise").out
    facts = {each["job"]: each for each in penstock("jobs", "--json").json()}
    assert facts["q3-thesis"]["streams"] == ["nexmark-auctions", "nexmark-persons"]
    assert facts["images-cells"]["records"] == "computing"
    assert penstock("jobs", "ysb", "--json").json() == facts["ysb"]


def test_workloads_lists_shapes_with_their_options_and_what_names_stand_for(penstock: Any) -> None:
    listed = penstock("workloads").out
    assert "before, after, at, duration, peak_executors" in listed  # of a ramp
    assert "recording:daedalus-ysb,peak_executors=12 for 6h" in listed
    facts = {each["workload"]: each for each in penstock("workloads", "--json").json()}
    assert facts["levels"]["options"] == ["levels", "hold", "peak_executors"]
    assert facts["pulsar"]["stands_for"].endswith("0.5,peak_executors=12 for 1h")


@pytest.mark.parametrize("name", ["daedalus-ysb", "daedalus-traffic", "borkowski-lab", "pulsar"])
def test_simulate_and_compare_take_the_named_loads(penstock: Any, name: str) -> None:
    short = ("--workload", name, "--duration", "20min", "--json")
    assert penstock("simulate", "--policy", "static:4", *short).json()["mean_executors"] == 4.0
    (row,) = penstock("compare", "--policy", "static:4", "--no-regret", *short).json()
    assert row["workload"] == name


def test_init_writes_settings_that_simulate_takes(penstock: Any, tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    assert penstock("init", str(path), "--policy", "static").code == 0
    text = path.read_text().replace("#executors = 12", "executors = 3")
    path.write_text(text.replace("#max_executors = 16", "max_executors = 2"))
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


def test_settings_in_the_folder_are_used_by_all_and_said_once(
    penstock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text(
        "[policy]\nname = 'static'\nexecutors = 3\n[limits]\nmax_executors = 5\n"
        "[goal]\nwarmup_s = 300.0\n"
    )
    load = ("--workload", "constant:5k", "--duration", "30min")
    result = penstock("simulate", *load, "--json")
    assert result.json()["mean_executors"] == pytest.approx(3.0)
    assert result.err == "penstock: settings from penstock.toml\n"
    # An option replaces what the file says, and so does another file.
    fewer = penstock("simulate", *load, "--max", "2", "--json")
    assert fewer.json()["mean_executors"] == pytest.approx(2.0)
    Path("other.toml").write_text("[policy]\nname = 'static:4'\n")
    other = penstock("simulate", *load, "--json", "--config", "other.toml")
    assert (other.json()["mean_executors"], other.err) == (pytest.approx(4.0), "")
    compared = penstock("compare", "--policy", "static:9", *load, "--no-regret")
    assert "30 min, 1 to 5 executors, seed 1" in compared.out
    assert "the first 5 min are not scored" in compared.out


def test_an_slo_on_the_command_line_reaches_the_policy_of_the_file(
    penstock: Any, tmp_path: Path
) -> None:
    config, path = tmp_path / "own.toml", tmp_path / "run.jsonl"
    config.write_text("[policy]\nname = 'penstock'\n[goal]\nslo_s = 3.0\n")
    common = ("simulate", "--config", str(config), "--workload", "constant:20k", *QUICK)
    assert penstock(*common, "--slo", "20s", "--journal", str(path)).code == 0
    assert read_header(path).run["policy"] == "penstock:slo=20s"


def test_a_fixed_fleet_starts_at_its_size(penstock: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    fixed = ("simulate", "--policy", "static:4", "--workload", "constant:50k", *QUICK)
    result = penstock(*fixed, "--journal", str(path))
    assert "0 after the warm-up of 5 min" in result.out
    assert {step.snapshot.fleet.target for step in read_steps(path) if step.snapshot} == {4}


def test_a_trace_says_what_is_done_to_it_and_a_fault_that_it_never_happens(
    penstock: Any, tmp_path: Path
) -> None:
    path = tmp_path / "load.csv"
    path.write_text("".join(f"{at},500\n" for at in (*range(0, 600, 60), *range(4200, 5400, 60))))
    result = penstock("simulate", "--policy", "static:2", "--workload", f"trace:{path}",
                      "--fault", "executor_lost:at=5h")  # fmt: skip
    assert result.code == 0
    assert "scaled by about" in result.err
    assert "a gap of 1 h 01 min (" in result.err
    assert "executor_lost:at=5h never happens" in result.err


def test_a_report_is_judged_by_the_slo_of_its_journals(penstock: Any, tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for path, slo in zip(paths, ("20s", "5s"), strict=True):
        run = ("simulate", "--policy", "static:4", "--workload", "constant:20k", *QUICK)
        assert penstock(*run, "--slo", slo, "--journal", path).code == 0
    page = ("--out", str(tmp_path / "page.html"), "--json")
    assert penstock("report", paths[0], *page).json()["slo_s"] == 20.0
    assert penstock("report", paths[0], *page, "--slo", "7s").json()["slo_s"] == 7.0
    both = penstock("report", *paths, *page)
    assert both.json()["slo_s"] == 20.0
    assert "different SLOs (20 s, 5 s): the first is used" in both.err


def test_a_lost_executor_is_told_while_it_runs_and_by_explain(
    penstock: Any, tmp_path: Path
) -> None:
    path = tmp_path / "run.jsonl"
    result = penstock("simulate", "--policy", "static:4", "--workload", "constant:20k", *QUICK,
                      "--fault", "executor_lost:at=20min", "--journal", str(path))  # fmt: skip
    assert "lost 1 executor: 3 of 4 registered" in result.out
    lost = penstock("explain", str(path), "--kind", "lost")
    assert "lost 1 executor: 3 of 4 registered" in lost.out
    assert lost.out.splitlines()[-1].startswith("1 of ")


def test_intervals_need_three_seeds_and_compare_says_what_it_ran(penstock: Any) -> None:
    common = ("compare", "--policy", "static:4", "hpa", "--workload", "constant:20k", *QUICK,
              "--no-regret", "--max", "6", "--seeds")  # fmt: skip
    two, three = penstock(*common, "1..2").out, penstock(*common, "1..3").out
    assert ("±" in two, "±" in three) == (False, True)
    assert "constant:20k on micro-batch: 30 min, 1 to 6 executors, seeds 1..3" in three


def test_every_line_of_init_is_toml_when_its_mark_is_removed(penstock: Any, tmp_path: Path) -> None:
    for policy in POLICIES:
        path = tmp_path / f"{policy}.toml"
        assert penstock("init", str(path), "--policy", policy).code == 0
        text = path.read_text()
        assert "not set" not in text.replace("Not set by default", "").replace("; not set", "")
        parse(re.sub(r"(?m)^#(?=\w)", "", text), policy)
        for name in ("slo_s", "price", "late_price", "move_price", "warmup_s"):
            assert len(re.findall(rf"(?m)^#{name} = ", text)) == 1


def test_a_policy_is_explained_with_defaults_and_without_code(penstock: Any) -> None:
    for policy in POLICIES:
        text = penstock("policies", policy).out
        assert ">>>" not in text
        assert "``" not in text
        assert "-----" not in text
    assert re.search(r"cpu_target_fraction +0.7 +Part of", penstock("policies", "hpa").out)
    assert "memory_target_fraction     not set" in penstock("policies", "hpa").out


def test_times_are_read_as_explain_prints_them(penstock: Any, journal: Path) -> None:
    def first_s(since: str) -> float:
        steps = penstock("explain", str(journal), "--since", since, "--json").json()
        return float(steps[0]["at_s"])

    assert first_s("0h20min") == first_s("0 h 20 min") == first_s("20min")
    assert first_s("00:20:00") == 1200.0


def test_an_unknown_code_is_answered_with_those_of_the_journal(
    penstock: Any, journal: Path
) -> None:
    result = penstock("explain", str(journal), "--code", "nosuch")
    assert result.code == 1
    assert "has the code 'nosuch'; its codes are" in result.err
    used = {reason.code for step in read_steps(journal) for reason in step.decision.reasons}
    assert ", ".join(sorted(used)) in result.err


def test_options_of_several_commands_read_alike(penstock: Any) -> None:
    """The same name has the same help, except for what only one command can say."""
    said: dict[str, set[str]] = {}
    for command in ("simulate", "compare", "tune", "run", "doctor"):
        text = " ".join(penstock(command, "--help").out.replace("│", " ").split())
        for option in ("--min", "--max", "--slo", "--config", "--duration", "--warmup", "--start",
                       "--fault", "--master", "--processes", "--resume"):  # fmt: skip
            if found := re.search(rf" {option} [A-Z.]+ (.*?)(?= --\w| ╰)", text):
                said.setdefault(option, set()).add(found[1])
    assert len(said) == 11
    assert {option: texts for option, texts in said.items() if len(texts) > 1} == {}


def test_every_help_says_its_exit_codes(penstock: Any) -> None:
    for command in ((), *((name,) for name in app if not name.startswith("-"))):
        result = penstock(*command, "--help")
        assert "Exit codes: 0 done, 1 done but the answer is no, 2 bad input" in result.out


def test_every_help_text_is_used_by_a_command() -> None:
    folder = Path(options.__file__).parent
    code = "".join(path.read_text() for path in folder.rglob("*.py"))
    unused = [key for key in options.TEXTS if f'about("{key}")' not in code]
    assert unused == []


def test_a_long_run_shows_progress_without_a_terminal_and_can_be_interrupted(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-m", "penstock", "simulate", "--duration", "30d", "--json"]
    run = subprocess.Popen(
        [*command, "--journal", "run.jsonl"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stderr is not None
    assert "1 run will take about" in run.stderr.readline()
    assert re.fullmatch(r"penstock: simulated .* of 720 h 00 min\n", run.stderr.readline())
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out, list(tmp_path.iterdir())) == (130, "", [])
    assert err.splitlines()[-1] == "penstock: interrupted"


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
