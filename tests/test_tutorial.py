"""The tutorial, word by word: each command in an empty environment, each output as shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', PAGE, re.DOTALL | re.MULTILINE)
UV = [sys.executable, "-m", "uv"]


def mismatch(shown: str, printed: str) -> str | None:
    """The first line that is shown and not printed, in that order; ``...`` stands for anything."""
    lines = iter(re.sub(r"\x1b\[[0-9;]*m", "", printed).replace("\r", "\n").splitlines())
    for line in shown.strip().splitlines():
        parts = (re.escape(" ".join(part.split())) for part in line.split("..."))
        pattern = re.compile(".*?".join(parts))
        if not any(pattern.search(" ".join(each.split())) for each in lines):
            return line
    return None


def test_the_order_of_lines_and_what_dots_stand_for() -> None:
    assert mismatch("a ... c\nd", "x\na  b  c\nd") is None
    assert mismatch("a ... c\nd", "d\na b c") == "d"
    assert mismatch("a ... c", "a b") == "a ... c"


def test_every_output_follows_a_command() -> None:
    kinds = [kind for kind, _, _ in BLOCKS]
    assert {"sh", "text", "python"} <= set(kinds)
    for place, kind in enumerate(kinds):
        assert kind != "text" or kinds[place - 1] == "sh"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with the wheel, and an environment that has what it needs, but not Penstock."""
    folder = tmp_path_factory.mktemp("tutorial")
    build = [*UV, "build", "--quiet", "--no-build-isolation", "--wheel", "--python", sys.executable]
    subprocess.run([*build, "--out-dir", str(folder / "dist"), str(ROOT)], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    home = folder / "home"
    python = str(home / "venv" / "bin" / "python")
    venv = ["venv", "--quiet", "--seed", "--python", sys.executable, str(home / "venv")]
    subprocess.run([*UV, *venv], check=True)
    install = [*UV, "pip", "install", "--quiet", "--python", python]
    # PySpark is pinned with its hash, or it would be built again for each environment.
    (folder / "pins.txt").write_text(pins("pyspark", "py4j", "confluent-kafka"), encoding="utf-8")
    pinned = [*install, "--no-deps", "--require-hashes", "-r", str(folder / "pins.txt")]
    subprocess.run(pinned, check=True)
    subprocess.run([*install, f"penstock[spark] @ file://{wheel}"], check=True)
    subprocess.run([*UV, "pip", "uninstall", "--quiet", "--python", python, "penstock"], check=True)
    return home, folder / "dist"


def pins(*names: str) -> str:
    """The lines of requirements.lock for some packages."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = [re.search(rf"^{name}==.*?(?=^\S)", lock, re.DOTALL | re.MULTILINE) for name in names]
    return "".join(match[0] for match in found if match)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tutorial_word_by_word(prepared: tuple[Path, Path]) -> None:
    home, dist = prepared
    # The first command is tried here, too: on an environment that exists it changes nothing.
    keep = {"PATH", "HOME", "JAVA_HOME", "LANG", "TMPDIR"}
    environment = {name: value for name, value in os.environ.items() if name in keep}
    # `pip install` takes the wheel of this clone, and everything else is there.
    environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(dist), "PWD": str(home)}
    printed = ""
    for kind, title, text in BLOCKS:
        if title:
            (home / title).parent.mkdir(parents=True, exist_ok=True)
            (home / title).write_text(text, encoding="utf-8")
        elif kind == "sh":
            printed, environment = run(text, home, environment)
        elif kind == "text":
            missing = mismatch(text, printed)
            assert missing is None, f"the page shows {missing!r}, but this was printed:\n{printed}"


def run(commands: str, home: Path, environment: dict[str, str]) -> tuple[str, dict[str, str]]:
    """What the commands print, and the environment that they leave behind."""
    variables = home.parent / "environment"
    script = f"set -e\n{commands}\nenv -0 > '{variables}'"
    done = subprocess.run(
        ["bash", "-c", script], cwd=home, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    left = variables.read_text(encoding="utf-8").split("\0")
    return done.stdout, dict(each.split("=", 1) for each in left if "=" in each)
