"""The Pythons of this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def python_of(version: str) -> str | None:
    """Another Python of this machine: on the path, or of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    return found[-1] if found else shutil.which(f"python{version}")
