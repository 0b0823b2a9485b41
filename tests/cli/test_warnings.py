"""Warnings on the command line: ours bear our name, those of other libraries do not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import warnings
from penstock.cli import app
from penstock.core.files import TornLineWarning

def command():
    warnings.warn_explicit("a torn line", TornLineWarning, "job.py", 3)
    warnings.warn_explicit("no room", UserWarning, app.__file__, 4)
    warnings.warn_explicit("a slow setting", UserWarning, "/site/pyspark/sql.py", 5)
    return 0

app.app.command(command, name="command")
app.main(["command"])
"""


def test_only_warnings_of_penstock_are_printed_with_its_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stderr.splitlines() == [
        "penstock: warning: a torn line",
        "penstock: warning: no room",
        "/site/pyspark/sql.py:5: UserWarning: a slow setting",
    ]
