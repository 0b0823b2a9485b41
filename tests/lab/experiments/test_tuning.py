"""Tuning: where it searches, how it halves, what it holds back, and what it writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from penstock.cli.app import main
from penstock.cli.commands.tune import settings_text
from penstock.core.errors import ConfigError
from penstock.lab.experiments.tournament import Cell, Row
from penstock.lab.experiments.tuning import (
    Judged,
    Round,
    Tuning,
    candidates,
    sizes,
    space,
    split,
    tune,
)
from penstock.policies import POLICIES
from penstock.policies.ds2 import Ds2
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.toml import parse

BOUNDS = {"min_executors": 1, "max_executors": 16}


def row(cell: Cell, cost: float) -> Row:
    scenario = cell.scenario
    return Row(cell.policy, scenario.workload, scenario.engine, scenario.seed, cost, 2.0, 1.0, 2.0,
               3.0, 0.0, 1, 1, cost)  # fmt: skip


class Paper:
    """Runs on paper: the nearer the overprovisioning to `best`, the cheaper."""

    def __init__(self, best: float, unseen_best: float | None = None) -> None:
        self.best, self.unseen_best = best, best if unseen_best is None else unseen_best
        self.played: list[Cell] = []

    def __call__(self, cells: Sequence[Cell]) -> list[Row]:
        self.played += cells
        return [row(cell, self.cost(cell)) for cell in cells]

    def cost(self, cell: Cell) -> float:
        policy = read_policy_spec(cell.policy).policy
        assert isinstance(policy, Ds2)
        best = self.unseen_best if cell.scenario.seed > 4 else self.best
        dear = 100.0 if cell.scenario.workload == "dear" else 1.0
        return dear * (1.0 + abs(policy.overprovisioning - best))


def searched(paper: Paper, count: int = 27) -> Tuning:
    parts = split(["cheap", "dear"], [], ["micro-batch"], [1, 2, 3, 4, 5, 6])
    drawn = candidates("ds2", space("ds2", {"overprovisioning": (0.0, 2.0)}), count, seed=1)
    return tune("ds2", drawn, parts, Goal(), BOUNDS, paper)


def test_the_best_of_all_candidates_is_found_and_validated() -> None:
    tuning = searched(Paper(best=1.0))
    every = candidates("ds2", space("ds2", {"overprovisioning": (0.0, 2.0)}), 27, seed=1)
    nearest = min(every, key=lambda text: abs(float(text.partition("=")[2]) - 1.0))
    assert tuning.found.policy == nearest
    assert tuning.better
    # The defaults cost 1 + |0.33 - 1| = 1.67, what was found about 1.
    assert tuning.found.cost_ratio == pytest.approx(1.0 / 1.67, abs=0.03)


def test_rounds_have_a_third_of_the_candidates_on_more_seeds() -> None:
    paper = Paper(best=1.0)
    tuning = searched(paper)
    # Two loads; seeds 1 to 4 are tuned on, 5 and 6 are held back.
    assert [(len(one.candidates), one.runs) for one in tuning.rounds] == [(27, 2), (9, 4), (3, 8)]
    played = [(cell.policy, cell.scenario) for cell in paper.played]
    assert len(played) == len(set(played))  # no run is made twice
    # 28 x 2 in the first round, with the defaults, then 10 x 2 more, 4 x 4 more, 4 x 4 held back.
    assert len(played) == 56 + 20 + 16 + 16


def test_what_only_does_well_on_what_it_was_tuned_on_is_not_better() -> None:
    tuning = searched(Paper(best=1.0, unseen_best=0.33))
    assert tuning.found.cost_ratio > 1.0
    assert not tuning.better


def test_defaults_that_nobody_beats_stay() -> None:
    tuning = searched(Paper(best=0.33), count=3)
    assert (tuning.found.policy, tuning.better) == ("ds2", False)


def test_a_dear_load_weighs_no_more_than_a_cheap_one() -> None:
    found = searched(Paper(best=1.0)).rounds[0].candidates[0]
    alone = split(["cheap"], [], ["micro-batch"], [1, 2, 3])
    ratio = tune("ds2", [found.policy], alone, Goal(), BOUNDS, Paper(best=1.0)).found.cost_ratio
    assert found.cost_ratio == pytest.approx(ratio)


@given(st.integers(1, 200), st.integers(1, 20))
def test_rounds_shrink_to_a_few_on_all_seeds(count: int, seeds: int) -> None:
    rounds = sizes(count, seeds)
    assert rounds[0][0] == count
    assert rounds[-1][0] <= 3
    assert rounds[-1][1] == seeds
    assert all(later[0] < sooner[0] for sooner, later in pairwise(rounds))
    assert all(1 <= each[1] <= seeds for each in rounds)


@pytest.mark.parametrize("policy", POLICIES)
def test_candidates_of_every_policy_are_allowed_differ_and_repeat_with_their_seed(
    policy: str,
) -> None:
    dimensions = space(policy)
    drawn = candidates(policy, dimensions, 12, seed=7)
    assert len(set(drawn)) == len(drawn) >= 2
    assert drawn == candidates(policy, dimensions, 12, seed=7)
    for text in drawn:
        values = read_policy_spec(text).policy
        for each in dimensions:
            assert each.low <= getattr(values, each.name) <= each.high


def test_a_range_may_be_given_also_for_a_limit() -> None:
    (dimension,) = space("hpa", {"cooldown": (0.0, 600.0)})
    assert (dimension.name, dimension.low, dimension.high) == ("cooldown_s", 0.0, 600.0)


REFUSED = {
    "unknown": ("ds2", {"windw": None}, "did you mean 'window'"),
    "no range": ("hpa", {"cooldown": None}, "cooldown needs a range"),
    "not a number": ("ds2", {"sharing": (0.0, 1.0)}, "sharing is not a number"),
    "outside": ("ds2", {"overprovisioning": (-1.0, 1.0)}, "cannot be searched from -1 to 1"),
    "upside down": ("ds2", {"window": (60.0, 30.0)}, "cannot be searched from 60 to 30"),
    "set already": ("ds2:window=30", {"window": None}, "sets window already"),
    "nothing left": ("static:4", {}, "has no parameter to search"),
}


@pytest.mark.parametrize(("policy", "wanted", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_space_that_cannot_be_searched_is_refused(
    policy: str, wanted: dict[str, tuple[float, float] | None], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        space(policy, wanted)


def test_one_seed_cannot_be_split() -> None:
    with pytest.raises(ConfigError, match="at least 2 seeds"):
        split(["sine"], [], ["micro-batch"], [1])


def found(policy: str) -> Tuning:
    judged = Judged(policy, 0.9, 1.0, 0.0)
    return Tuning(policy.partition(":")[0], (Round(1, (judged,)),), (judged,))


@pytest.mark.parametrize("policy", POLICIES)
def test_what_was_found_for_any_policy_is_what_its_settings_say(policy: str) -> None:
    text = candidates(policy, space(policy), 1, seed=3)[0] + ",max_step=5"
    goal = Goal(slo_s=5.0, move_price=0.25)
    settings = parse(settings_text(found(text), goal, BOUNDS, "here"), "here")
    entry = read_policy_spec(text, BOUNDS, goal)
    assert (settings.spec.policy, settings.goal) == (entry.policy, goal)
    assert asdict(settings.spec.limits) == asdict(entry.limits)


def penstock(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


def test_tune_writes_settings_that_load_and_never_over_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, kept = tmp_path / "penstock.toml", tmp_path / "done.jsonl"
    # A fleet of 12 for a load that 2 or 3 carry: something smaller must be found.
    command = ("tune", "static", "--parameter", "executors=2..12", "--workload", "constant:10k",
               "--candidates", "6", "--seeds", "1..3", "--duration", "20min", "--warmup", "5min",
               "--processes", "1", "--resume", str(kept), "--out", str(path))  # fmt: skip
    code, out, _ = penstock(capsys, *command)
    assert (code, "less than the defaults on the runs held back" in out) == (0, True)
    policy = parse(path.read_text(), "file").spec.policy
    assert 2 <= policy.executors < 12  # type: ignore[attr-defined]
    written = path.read_text()
    code, _, err = penstock(capsys, *command)
    assert (code, "exists already" in err) == (2, True)
    assert path.read_text() == written
    code, out, _ = penstock(capsys, *command, "--force", "--json")
    assert json.loads(out)["found"] == {"executors": policy.executors}  # type: ignore[attr-defined]
    assert path.read_text() == written


def test_tune_ends_with_one_and_writes_nothing_when_the_defaults_are_best(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "penstock.toml"
    # 12 executors have to be 13 to 16: for so little load that only costs.
    code, out, _ = penstock(
        capsys, "tune", "static", "--parameter", "executors=13..16", "--workload", "constant:10k",
        "--candidates", "3", "--seeds", "1,2", "--duration", "20min", "--warmup", "5min",
        "--processes", "1", "--out", str(path),
    )  # fmt: skip
    assert (code, "nothing is better than the defaults" in out) == (1, True)
    assert not path.exists()


def test_a_setting_of_the_users_own_takes_part_in_the_search(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Those that are drawn have 9 to 16 executors; 3 carry the load as well.
    code, out, _ = penstock(
        capsys, "tune", "static", "--parameter", "executors=9..16", "--also", "static:3",
        "--workload", "constant:10k", "--candidates", "3", "--seeds", "1,2", "--duration", "20min",
        "--warmup", "5min", "--processes", "1", "--out", str(tmp_path / "own.toml"), "--json",
    )  # fmt: skip
    assert (code, json.loads(out)["found"]) == (0, {"executors": 3})


BAD = {
    "unknown policy": (("hpaa",), "did you mean 'hpa'"),
    "unknown parameter": (("ds2", "--parameter", "windw"), "did you mean 'window'"),
    "bad range": (("ds2", "--parameter", "window=5"), "key or key=low..high"),
    "named twice": (("ds2", "--parameter", "window", "window"), "names window twice"),
    "no candidate": (("ds2", "--candidates", "0"), "--candidates must be a whole number from 1"),
    "one seed": (("ds2", "--seeds", "4"), "at least 2 seeds"),
    "unknown load": (("ds2", "--validate", "sinus"), "did you mean 'sine'"),
    "of another policy": (("ds2", "--also", "hpa"), "other settings of ds2, not of hpa"),
    "no such setting": (("ds2", "--also", "ds2:windw=5"), "did you mean 'window'"),
    "no folder": (("ds2", "--out", "no/where.toml"), "cannot write no/where.toml"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = penstock(capsys, "tune", *arguments)
    assert (code, words in err, len(err.strip().splitlines())) == (2, True, 1), err
