"""How much of the public API has types, as Pyright sees it in an installed wheel.

``make typing`` prints what is not known and exits with 1 if there is any. Pyright is part of the
development environment; it needs Node.js, and no network.
"""

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import penstock

ROOT = Path(__file__).parents[1]
UV = [sys.executable, "-m", "uv"]


def public_names() -> list[str]:
    """Where the names of ``penstock.__all__`` are defined."""
    values = [getattr(penstock, name) for name in penstock.__all__]
    return [
        f"{each.__module__}.{each.__qualname__}" for each in values if hasattr(each, "__module__")
    ]


def verify(folder: Path) -> dict[str, Any]:
    """The report of ``pyright --verifytypes`` on the wheel of this clone."""
    build = ["build", "--quiet", "--no-build-isolation", "--wheel", "--python", sys.executable]
    subprocess.run([*UV, *build, "--out-dir", str(folder / "dist"), str(ROOT)], check=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    target = folder / "installed"
    install = ["pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run([*UV, *install], check=True)
    # Pyright does not verify a package that is installed as editable.
    paths = f"{target}{os.pathsep}{sysconfig.get_path('purelib')}"
    environment = os.environ | {"PYTHONPATH": paths, "PYRIGHT_PYTHON_GLOBAL_NODE": "1"}
    pyright = [sys.executable, "-m", "pyright", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(
        [*pyright, "--verifytypes", "penstock"], cwd=folder, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        report: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        raise SystemExit(f"pyright could not run: {done.stderr or done.stdout}") from None
    return report


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-typing-") as folder:
        report = verify(Path(folder))
    names = public_names()
    symbols = [
        each
        for each in report["symbols"]
        if any(each["name"] == name or each["name"].startswith(f"{name}.") for name in names)
    ]
    unknown = [each for each in symbols if not each["isTypeKnown"]]
    for each in unknown:
        for found in each["diagnostics"] or [{"message": "a member of it is not known"}]:
            print(f"{each['name']}: {' '.join(found['message'].split())}")
    print(f"public API: {len(symbols) - len(unknown)} of {len(symbols)} symbols have known types")
    print(f"whole package: {report['completenessScore']:.1%}")
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
