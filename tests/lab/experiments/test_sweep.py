"""Sweeps: what is done is kept, whoever did it, and a run is never mistaken for another."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import astuple

from penstock.cli.app import main
from penstock.core.errors import ConfigError
from penstock.core.files import TornLineWarning
from penstock.lab.experiments.process_pool import run_in_processes
from penstock.lab.experiments.sweep import (
    OnRow,
    ResumeFile,
    digest,
    sweep,
    trace_files,
    write_table,
)
from penstock.lab.experiments.tournament import Cell, Row, cells, varied
from penstock.settings.goal import Goal
from penstock.testbed import wait_until

QUICK = ("--duration", "20min", "--warmup", "5min")


def grid(*policies: str, load: str = "constant:20k", seeds: Sequence[int] = (1, 2)) -> list[Cell]:
    bounds = {"min_executors": 1, "max_executors": 16}
    return cells(policies, [load], ["micro-batch"], seeds, goal=Goal(warmup_s=300.0),
                 bounds=bounds, duration_s=1200.0)  # fmt: skip


def here(work: Any, some: Sequence[Cell], arrived: OnRow) -> object:
    return run_in_processes(work, some, 1, on_result=arrived)


def compare(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["compare", *arguments])
    captured = capsys.readouterr()
    return int(end.value.code or 0), captured.out, captured.err


class Counting:
    """Carries cells out here, counts them, and may break off."""

    def __init__(self, most: int = 1000) -> None:
        self.most, self.done = most, 0

    def __call__(self, work: Any, some: Sequence[Cell], arrived: OnRow) -> None:
        for place, cell in enumerate(some):
            if self.done == self.most:
                raise KeyboardInterrupt
            arrived(place, work(cell))
            self.done += 1


def test_an_interrupted_sweep_goes_on_where_it_was_and_ends_with_the_same_rows(
    tmp_path: Path,
) -> None:
    every = grid("hpa", "ds2", "static:4")
    whole = sweep(every, here)
    path = tmp_path / "done.jsonl"
    with ResumeFile(path, Row) as kept, pytest.raises(KeyboardInterrupt):
        sweep(every, Counting(most=4), kept)
    rest = Counting()
    told: list[int] = []
    with ResumeFile(path, Row) as kept:
        assert sweep(every, rest, kept, told.append) == whole
    assert rest.done == len(every) - 4
    assert told == [4, 5, 6]


def test_a_sweep_that_is_done_carries_nothing_out(tmp_path: Path) -> None:
    with ResumeFile(tmp_path / "done.jsonl", Row) as kept:
        first = sweep(grid("hpa"), here, kept)
        assert sweep(grid("hpa"), Counting(most=0), kept) == first


def test_equal_cells_are_carried_out_once() -> None:
    counting = Counting()
    rows = sweep([*grid("hpa"), *grid("hpa")], counting)
    assert (counting.done, rows[:2]) == (2, rows[2:])


def test_a_line_that_was_being_written_is_done_again(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    with ResumeFile(path, Row) as kept:
        whole = sweep(grid("hpa"), here, kept)
    path.write_bytes(path.read_bytes()[:-20])
    again = Counting()
    with pytest.warns(TornLineWarning, match="is torn and was cut"):
        kept = ResumeFile(path, Row)
    with kept:
        assert sweep(grid("hpa"), again, kept) == whole
    assert again.done == 1
    assert len(path.read_text().splitlines()) == 3  # the header and two runs


def test_two_sweeps_cannot_share_a_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    with (
        ResumeFile(path, Row),
        pytest.raises(ConfigError, match="another process or attachment writes"),
    ):
        ResumeFile(path, Row)
    with ResumeFile(path, Row) as kept:
        assert kept.rows == {}


@pytest.mark.parametrize("content", ["time,rate\n0,5\n", "no line end", '{"format":"other"}\n'])
def test_a_file_of_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "load.csv"
    path.write_text(content)
    with pytest.raises(ConfigError, match="does not hold finished runs"):
        ResumeFile(path, Row)
    assert path.read_text() == content


def test_whatever_changes_the_numbers_changes_the_digest(tmp_path: Path) -> None:
    first = grid("hpa")[0]
    others = [*grid("hpa")[1:], grid("ds2")[0], grid("hpa", load="constant:21k")[0]]
    assert len({digest(cell) for cell in [first, *others]}) == 1 + len(others)
    assert digest(first) == digest(grid("hpa")[0])
    trace = tmp_path / "load.csv"
    trace.write_text("0,5\n600,6\n")
    before = digest(grid("hpa", load=f"trace:{trace}")[0])
    trace.write_text("0,5\n600,7\n")
    assert digest(grid("hpa", load=f"trace:{trace}")[0]) != before


def test_the_traces_of_a_combined_load_are_all_found() -> None:
    load = "(trace:a.csv * 2 + sine) for 1h then trace:b.csv,hours=2 + trace:a.csv"
    assert trace_files(load) == ("a.csv", "b.csv")


def test_every_combination_of_varied_parameters_is_tried() -> None:
    values = {"window": ["30s", "2min"], "overprovisioning": ["0.2"]}
    assert varied(["ds2", "static:4", "hpa:cooldown=1min"], values) == [
        "ds2:window=30s,overprovisioning=0.2",
        "ds2:window=2min,overprovisioning=0.2",
        "static:4",
        "hpa:cooldown=1min",
    ]
    with pytest.raises(ConfigError, match="none of the policies has a parameter 'windw'"):
        varied(["ds2"], {"windw": ["1"]})


def test_a_table_in_csv_reads_back_to_the_last_bit(tmp_path: Path) -> None:
    rows = sweep(grid("hpa", "static:4"), here)
    path = tmp_path / "results.csv"
    write_table(path, Row, rows)
    read = list(csv.reader(path.read_text().splitlines()))
    assert tuple(read[0]) == Row.__struct_fields__
    for line, row in zip(read[1:], rows, strict=True):
        kinds = [type(value) for value in astuple(row)]
        assert line[-1] == ""  # no oracle has run
        assert [kind(text) for kind, text in zip(kinds[:-1], line, strict=False)] == list(
            astuple(row)[:-1]
        )


def test_compare_writes_the_rows_of_its_json_and_a_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table, page = tmp_path / "r.csv", tmp_path / "r.html"
    code, out, _ = compare(capsys, "--policy", "ds2", "--vary", "overprovisioning=0.2,0.5",
                           "--workload", "constant:20k", *QUICK, "--json", "--processes", "1",
                           "--out", str(table), "--html", str(page))  # fmt: skip
    assert code == 0
    rows = json.loads(out)
    assert [row["policy"] for row in rows] == [
        "ds2:overprovisioning=0.2", "ds2:overprovisioning=0.5",
    ]  # fmt: skip
    with table.open() as file:
        read = list(csv.DictReader(file))
    assert [float(line["regret"]) for line in read] == [row["regret"] for row in rows]
    assert "2 policies on constant:20k on micro-batch" in page.read_text()


BAD = {
    "ending": (("--out", "results.xlsx"), "--out must end in .csv or .parquet"),
    "folder": (("--out", "no/where.csv"), "cannot write no/where.csv"),
    "page folder": (("--html", "no/where.html"), "cannot write no/where.html"),
    "far place": (("--out", "s3a://bucket/results"), "only Spark can write there, add --on spark"),
    "master alone": (("--master", "spark://host:7077"), "--master goes with --on spark"),
    "processes there": (("--on", "spark", "--processes", "2"), "not for --on spark"),
    "no process": (("--processes", "0"), "--processes must be a whole number from 1"),
    "vary": (("--vary", "window"), "--vary must be key=value"),
    "vary twice": (("--vary", "window=1", "window=2"), "gives window twice"),
    "elsewhere": (("--on", "moon"), "moon"),
    "no folder": (("--resume", "no/where.jsonl"), "cannot keep finished runs"),
}


@pytest.mark.parametrize(("arguments", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_sentence_before_the_first_run(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = compare(capsys, "--policy", "ds2", "--seeds", "1..10000", *arguments)
    assert (code, words in err, len(err.strip().splitlines())) == (2, True, 1), err


@pytest.mark.slow
def test_a_comparison_that_is_interrupted_says_what_it_keeps_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    argv = [sys.executable, "-m", "penstock", "compare", "--policy", "hpa,ds2", "--duration", "3h"]
    argv += ["--seeds", "1..4", "--no-regret", "--json", "--resume", str(path), "--processes", "2"]
    run = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    wait_until(lambda: _lines(path) >= 3 or run.poll() is not None, 120.0, "no run came to an end")
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    if run.returncode == 130:  # else it was quicker than the signal
        assert f"kept in {path}, the same command continues" in " ".join(err.split())
    kept = _lines(path) - 1
    finished = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert _lines(path) - 1 == 8
    assert kept >= 2
    fresh = subprocess.run(
        [each for each in argv if each not in ("--resume", str(path))],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert finished.stdout == fresh.stdout


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_kept_row_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    path = tmp_path / "done.jsonl"
    with ResumeFile(path, Row) as kept:
        rows = sweep(grid("penstock"), partial(here), kept)
    with ResumeFile(path, Row) as again:
        assert [astuple(row) for row in again.rows.values()] == [astuple(row) for row in rows]
