"""The page of a reproduced study: all of it is there, none of it is markup, nothing is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from penstock.cli.commands.reproduce import reproduce
from penstock.cli.views.study_page import study_page
from penstock.core.errors import ConfigError
from penstock.lab.studies.study import (
    Bar,
    Bars,
    Box,
    Boxes,
    Calibration,
    Chart,
    ChartLine,
    Claim,
    Comparison,
    Distance,
    Entry,
    Metric,
    Study,
)

STUDY = Study(
    name="x2024",
    title="Scaling <fast>",
    source="its authors",
    protocol="two runs & one load",
    tables=(
        Comparison(
            "Table 1",
            (Metric("workers", "", 1), Metric("latency", "s")),
            (Entry("hpa", {"workers": 5.25, "latency": None}, {"workers": 4.75, "latency": 1.5}),),
        ),
        Comparison("Ours alone", (Metric("p95"),), (Entry("ds2", {}, {"p95": 3.0}),)),
    ),
    claims=(
        Claim("X1", "ds2 is best", True, {"ds2": 3.14159}),
        Claim("X2", "hpa is worst", False, {"hpa": 2.0}, "it is the fixed fleet"),
    ),
    distances=(Distance("rank correlation, workers", 0.91, 0.8), Distance("error", 0.2)),
    calibrations=(Calibration("q1", "fitted on half a run", {"restart_s": 7.5}, {"delay": 0.125}),),
    figures=(
        Chart("</script>", "time", "s", (ChartLine("recorded", [0.0, 15.0], [1.0, None]),)),
        Boxes("boxes", "h", (Box("EKF", "Pyramid", (1.0, 2.0, 3.0, 4.0, 5.0), 3.5),)),
        Bars("bars", "workers", (Bar("hpa", "q1", None, 4.0),)),
    ),
)


def test_claims_tables_distances_and_the_fit_stand_on_the_page() -> None:
    page = study_page(STUDY)
    assert page.count("✓") == 1
    assert page.count("✗") == 1
    assert "it is the fixed fleet" in page
    assert "<dd>3.142</dd>" in page
    assert ">5.2<" in page  # the paper's workers, to one decimal, beside ours
    assert ">4.8<" in page
    assert "1 of 2" in page
    assert "0.91" in page
    assert "12.5%" in page
    assert "fitted on half a run" in page


def test_a_table_that_the_paper_does_not_have_shows_ours_alone() -> None:
    page = study_page(STUDY)
    alone = page[page.index("Ours alone") :]
    assert ">paper<" not in alone[: alone.index("</table>")]


def test_text_is_never_markup_and_cannot_end_the_script() -> None:
    page = study_page(STUDY)
    assert "Scaling &lt;fast&gt;" in page
    assert "two runs &amp; one load" in page
    assert page.count("</script>") == 2  # those of the template


def test_the_page_carries_its_charts_as_data_and_loads_nothing() -> None:
    page = study_page(STUDY)
    found = re.search(r'id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    kinds = [figure["kind"] for figure in msgspec.json.decode(found[1])]
    assert kinds == ["chart", "boxes", "bars"]
    assert page.count("data-figure=") == 3
    assert not re.search(r"https?://|@import|src=", page)


def test_a_study_travels_as_json_and_comes_back_the_same() -> None:
    text = msgspec.json.encode(STUDY)
    assert msgspec.json.decode(text, type=Study) == STUDY


def test_an_unknown_study_or_a_place_that_cannot_be_is_said_before_anything_runs(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="koper2022"):
        reproduce("koper2020")
    with pytest.raises(ConfigError, match="is a directory"):
        reproduce("russo2021", html=tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write"):
        reproduce("all", html=tmp_path / "file")


def test_the_command_prints_a_study_and_writes_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "pages" / "russo.html"
    code = reproduce("russo2021", html=place, processes=1, json=True)
    document = msgspec.json.decode(capsys.readouterr().out)
    held = [claim["holds"] for claim in document["claims"]]
    assert [set(claim) >= {"claim", "holds", "evidence"} for claim in document["claims"]]
    assert code == (0 if all(held) else 1)
    assert "Elastic Pulsar Functions" in place.read_text(encoding="utf-8")
