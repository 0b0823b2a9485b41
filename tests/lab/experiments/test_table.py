"""Tables in files, and what is said without the extra that has the libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import astuple

from penstock.lab.experiments import lab_module
from penstock.lab.experiments.sweep import write_table
from penstock.lab.experiments.tournament import Row

WITHOUT_EXTRA = """
import sys
sys.modules.update(dict.fromkeys(("scipy", "scipy.stats", "pyarrow", "pyarrow.parquet")))
from penstock.cli.app import main
main(sys.argv[1:])
"""


def test_a_table_in_parquet_reads_back_to_the_last_bit(tmp_path: Path) -> None:
    rows = [
        Row("static:ä", "sine", "micro-batch", 2**40, 0.1, 1 / 3, 1e-300, 5e-324, 1.7e308, 0.0,
            0, 3, 12.5, None if seed % 3 else 0.25)
        for seed in range(40)
    ]  # fmt: skip
    path = tmp_path / "results.parquet"
    write_table(path, Row, rows)
    read = lab_module("pyarrow.parquet", "a test").read_table(path).to_pylist()
    assert [tuple(line.values()) for line in read] == [astuple(row) for row in rows]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("compare", "--policy", "hpa", "--out", "x.parquet"), 2, "--out x.parquet needs pyarrow"),
        (("reproduce", "russo2021"), 2, "reproduce needs scipy"),
        (("reproduce", "all", "--html", "pages"), 2, "reproduce needs scipy"),
        (("compare", "--policy", "hpa", "--workload", "constant:20k", "--duration", "20min",
          "--seeds", "1..3", "--no-regret", "--processes", "1"), 0, ""),
    ],
)  # fmt: skip
def test_without_the_extra_a_sentence_names_it_and_a_plain_comparison_works(
    tmp_path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    argv = [sys.executable, "-c", WITHOUT_EXTRA, *arguments]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert words in ended.stderr
    if code:
        assert 'pip install "penstock[lab]"' in " ".join(ended.stderr.split())
        assert len(ended.stderr.strip().splitlines()) == 1
        assert not list(tmp_path.iterdir())
