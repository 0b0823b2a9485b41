"""The words of a reproduced study: ranks, distances, what is reached."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from penstock.core.errors import ConfigError
from penstock.lab.experiments.sweep import ResumeFile
from penstock.lab.studies import STUDIES, reproduce, skeleton
from penstock.lab.studies.skeleton import Bench, KeptResult, Prose, Told, data, explained, prose
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


class Cost(msgspec.Struct, frozen=True):
    workers: float


def _cost(number: int) -> Cost:
    if number > 2:
        raise KeyboardInterrupt
    return Cost(number / 3.0)


def _never(number: int) -> Cost:
    raise AssertionError(number)


def test_an_interrupted_study_goes_on_where_it_was_with_the_same_numbers(tmp_path: Path) -> None:
    with ResumeFile(tmp_path / "done.jsonl", KeptResult) as kept, pytest.raises(KeyboardInterrupt):
        Bench(1, kept=kept).run(_cost, [1, 2, 3], "runs")
    _never.__qualname__ = _cost.__qualname__
    with ResumeFile(tmp_path / "done.jsonl", KeptResult) as kept:
        assert Bench(1, kept=kept).run(_never, [2, 1], "runs") == [Cost(2 / 3.0), Cost(1 / 3.0)]


def test_a_kept_run_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    with ResumeFile(path, KeptResult) as kept:
        Bench(1, kept=kept).run(_cost, [2], "runs")
    path.write_text(path.read_text().replace('"workers":0.', '"workers":1.'))
    with (
        ResumeFile(path, KeptResult) as kept,
        pytest.raises(ConfigError, match="was changed: its hash does not match"),
    ):
        Bench(1, kept=kept).run(_cost, [2], "runs")


def test_data_of_a_study_that_was_changed_by_hand_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("russo2021.json", "sha256.json"):
        content = files("penstock.lab.studies").joinpath("data", name).read_bytes()
        folder.joinpath(name).write_bytes(content.replace(b"2.7", b"1.7"))
    monkeypatch.setattr(skeleton, "files", lambda _: tmp_path)
    with pytest.raises(ConfigError, match=r"data/russo2021\.json .* its hash does not match"):
        data("russo2021", dict)


def test_prose_tells_numbers_of_the_runs_and_of_what_was_tried() -> None:
    told = Told("koper2022", {("q1", "hpa 50"): [Cost(2.0), Cost(5.0)]})
    line = "{q1, hpa 50, workers:.1f}, {least of q1, hpa 50, workers:.0f}"
    assert line.format_map(told) == "3.5, 2"
    (tried, _) = explained("koper2022")
    assert told["K8/as it/hpa 50, rescales"] == tried.entries[1].ours["hpa 50, rescales"]


def test_every_number_that_prose_names_in_braces_can_be_told() -> None:
    """A typing error in a caption would end a study after minutes of runs."""
    for name in STUDIES:
        for section, text in prose(name).sections.items():
            for field in re.findall(r"\{([^{}:]+)[:}]", " ".join(text.split())):
                if "/" in field:
                    assert Told(name, {})[field] is not None, section
                elif ", " in field:
                    assert field.count(", ") >= 2, section
