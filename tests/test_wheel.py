"""The wheel carries everything it needs and runs from any directory, without PySpark."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools.pythons import python_of

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = [sys.executable, "-m", "uv"]
    build = [*uv, "build", "--quiet", "--no-build-isolation", "--wheel", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """An environment with nothing but the wheel and what it depends on."""
    empty = wheel.parent / "empty"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, str(empty)], check=True)
    python = str(empty / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", python, str(wheel)], check=True)
    return empty / "bin"


def ran(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_holds_each_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [path for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert names == {str(path.relative_to(SOURCE)) for path in files}
    assert {"penstock/py.typed", "penstock.pth", "penstock_hook.py"} <= names


@pytest.mark.slow
def test_the_wheel_has_the_version_that_the_package_says(installed: Path, tmp_path: Path) -> None:
    (written,) = re.findall(
        r'^__version__ = "(.*)"$', (SOURCE / "penstock/__init__.py").read_text("utf-8"), re.M
    )
    code = (
        "import penstock; from importlib.metadata import version\n"
        "print(penstock.__version__, version('penstock'))"
    )
    said = ran([str(installed / "python"), "-c", code], tmp_path).split()
    assert said == [written] * 2
    assert f"version: {written}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## {written} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_package_index_would_take_the_wheel(wheel: Path) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_wheel_runs_on_other_pythons(wheel: Path, tmp_path: Path, version: str) -> None:
    if (python := python_of(version)) is None:
        pytest.skip(f"this machine has no Python {version}")
    uv, empty = [sys.executable, "-m", "uv"], tmp_path / "empty"
    subprocess.run([*uv, "venv", "--quiet", "--python", python, str(empty)], check=True)
    target = str(empty / "bin" / "python")
    subprocess.run([*uv, "pip", "install", "--quiet", "--python", target, str(wheel)], check=True)
    assert ran([target, "--version"], tmp_path).split()[1].startswith(f"{version}.")
    penstock = str(empty / "bin" / "penstock")
    load = ["--workload", "sine", "--duration", "1h"]
    ran([penstock, "simulate", *load, "--journal", "run.jsonl", "--json"], tmp_path)
    assert ran([penstock, "explain", "run.jsonl"], tmp_path)
    ran([penstock, "report", "run.jsonl"], tmp_path)


@pytest.mark.slow
def test_the_commands_run_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    penstock = str(installed / "penstock")
    assert "simulate" in ran([penstock, "--help"], tmp_path)
    assert "--workload" in ran([penstock, "simulate", "--help"], tmp_path)
    assert "hpa" in ran([penstock, "policies"], tmp_path)
    load = ["--workload", "sine", "--duration", "1h"]
    ran([penstock, "simulate", *load, "--journal", "run.jsonl", "--json"], tmp_path)
    assert ran([penstock, "explain", "run.jsonl"], tmp_path)
    ran([penstock, "report", "run.jsonl"], tmp_path)
    assert list(tmp_path.glob("*.html")), "the page needs its templates"
    ran([penstock, "compare", "--policy", "static:4", *load, "--no-regret", "--json"], tmp_path)
    ran([penstock, "init"], tmp_path)
    assert (tmp_path / "penstock.toml").exists()


@pytest.mark.slow
def test_the_public_names_load_from_the_wheel_without_pyspark(
    installed: Path, tmp_path: Path
) -> None:
    code = (
        "import penstock, sys\n"
        "for name in penstock.__all__: getattr(penstock, name)\n"
        "assert 'pyspark' not in sys.modules\n"
        "penstock.compare(['static:4', 'penstock'], ['sine'], duration_s=1800.0)\n"
        "policy = penstock.read_policy_spec('hpa').policy\n"
        "for check in penstock.checks.yield_checks(policy): check()\n"
        "print('ok')"
    )
    assert ran([str(installed / "python"), "-c", code], tmp_path).strip() == "ok"
