"""A command in this process, and a journal of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import main

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
