"""The words of a reproduced study: ranks, distances, what is reached."""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec
import pytest

from penstock.core.errors import ConfigError
from penstock.lab.studies import STUDIES, reproduce
from penstock.lab.studies.skeleton import Bench, Prose, explained, prose
from penstock.lab.studies.study import (
    Claim,
    Comparison,
    Distance,
    Entry,
    Metric,
    Study,
    distances,
    mean_relative_error,
)


def test_errors_relative_to_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one pair"):
        mean_relative_error([(0.0, 1.0)])


def _table() -> Comparison:
    rows = (("a", 1.0, 1.0, 5.0), ("b", 2.0, 4.0, None), ("c", 4.0, 3.0, 6.0))
    return Comparison(
        "table 1",
        (Metric("workers"), Metric("latency", "s")),
        tuple(
            Entry(label, {"workers": paper, "latency": late}, {"workers": ours, "latency": late})
            for label, paper, ours, late in rows
        ),
    )


def test_pairs_leave_out_what_one_side_does_not_have() -> None:
    assert _table().pairs("latency") == [(5.0, 5.0), (6.0, 6.0)]


def test_the_distances_of_a_table_are_a_correlation_and_an_error_per_metric() -> None:
    found = {each.name: each for each in distances({"q1 ": _table()}, {"workers": 0.8})}
    assert found["rank correlation, q1 workers"] == Distance(
        "rank correlation, q1 workers", 0.5, 0.8
    )
    assert found["rank correlation, q1 workers"].reached is False
    assert found["rank correlation, q1 latency"].reached is None
    # (0/1 + 2/2 + 1/4) / 3
    assert found["mean relative error, q1 workers"].value == pytest.approx(1.25 / 3)


def test_an_error_reaches_its_aim_from_above() -> None:
    assert Distance("error", 0.2, 0.3, more_is_better=False).reached is True


def test_a_study_counts_its_claims_and_can_be_written_as_json() -> None:
    claims = (
        Claim("X1", "one is one", True, {"one": 1.0}),
        Claim("X2", "one is two", False, {"one": 1.0}, "it is not"),
    )
    study = Study("x", "X", "nowhere", "none", (_table(),), claims)
    assert study.held == 1
    assert msgspec.json.decode(msgspec.json.encode(study), type=Study) == study


def test_an_unknown_study_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown study 'koper': did you mean 'koper2022'"):
        reproduce("koper")


def test_every_study_has_its_prose_and_what_the_paper_printed() -> None:
    for name in STUDIES:
        texts = prose(name)
        assert texts.title
        assert {"Source", "Protocol", "Calibration"} <= texts.sections.keys()
        content = files("penstock.lab.studies").joinpath("data", f"{name}.json").read_bytes()
        assert msgspec.json.decode(content)["source"]


def test_explanations_that_were_tried_stand_beside_the_paper_and_name_claims_of_the_study() -> None:
    tables = {name: list(explained(name)) for name in STUDIES}
    assert len(tables["koper2022"]) == 2
    for name, each in tables.items():
        for table in each:
            claims = re.findall(r"\b[A-Z]\d+\b", table.title)
            assert claims
            assert set(claims) <= set(prose(name).conditions())
            assert table.entries[0].label == "the paper"
            assert all(e.ours.keys() == table.entries[0].paper.keys() for e in table.entries[1:])


def test_results_of_groups_come_back_by_group_and_progress_is_said() -> None:
    heard: list[str] = []
    bench = Bench(1, heard.append)
    assert bench.run_groups(abs, {"a": [-1, -2], "b": [], "c": [-3]}, "runs") == {
        "a": [1, 2],
        "b": [],
        "c": [3],
    }
    assert heard == ["runs", "runs: 1 of 3", "runs: 2 of 3", "runs: 3 of 3"]


def test_a_claim_gives_its_reason_only_where_it_does_not_hold() -> None:
    texts = Prose("x", "X", {"X1": "\none is\ntwo\n\nWhy not: it is\nnot\n"})
    assert texts.claim("X1", True, {}, "three") == Claim("X1", "one is two", True, {})
    assert texts.claim("X1", False, {}, "it is three").reason == "it is three. it is not"
