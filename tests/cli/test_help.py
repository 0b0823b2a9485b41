"""Help texts, and what a command costs before it begins and after it is interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import options
from penstock.cli.app import app


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
