"""The script of docs/testbed.md works as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testbed import Testbed

PAGE = Path(__file__).parents[2] / "docs" / "testbed.md"


@pytest.mark.slow
def test_the_script_of_the_page_prints_what_the_page_says(tmp_path: Path) -> None:
    (script,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["counted: 1000", "executors: 2", ""]


def test_every_call_that_the_page_names_exists() -> None:
    for call in set(re.findall(r"`bed\.(\w+)", PAGE.read_text())):
        assert hasattr(Testbed, call), call
