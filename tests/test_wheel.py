"""The wheel carries everything it needs and runs from any directory."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_wheel_installs_into_an_empty_environment_and_runs_there(tmp_path: Path) -> None:
    uv = [sys.executable, "-m", "uv"]
    build = [*uv, "build", "--quiet", "--no-build-isolation", "--wheel", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "penstock/py.typed" in names
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]

    empty = tmp_path / "empty"
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(empty)], check=True)
    python = str(empty / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, str(wheel)], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for arguments in (
        ["--version"],
        ["policies"],
        ["simulate", "--workload", "sine", "--duration", "1h", "--journal", "run.jsonl", "--json"],
        ["explain", "run.jsonl"],
    ):
        command = [str(empty / "bin" / "penstock"), *arguments]
        ran = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
