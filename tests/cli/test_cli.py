"""The output of the commands as a user meets it, and their JSON."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.core.journal import read_header, read_steps
from penstock.policies import POLICIES
from penstock.settings.toml import parse
from tests.cli.conftest import QUICK


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
