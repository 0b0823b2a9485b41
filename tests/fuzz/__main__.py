"""Fuzz for minutes: guided by coverage where atheris is installed, else by hypothesis.

An input that fails is kept in ``tests/fuzz/corpus/TARGET``, and `make test` runs it from then on.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.core.clock import WallClock

now_s = WallClock().now
CORPUS = Path(__file__).with_name("corpus")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("targets", nargs="*", help="all of them by default")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all targets together")
    parser.add_argument("--here", action="store_true", help="one target, in this process")
    given = parser.parse_args()
    guided = find_spec("atheris") is not None
    if given.here:  # before the import below, which is to be instrumented
        (_by_coverage if guided else _at_random)(given.targets[0], 60.0 * given.minutes)
        return 0
    from tests.fuzz.targets import TARGETS

    if strange := set(given.targets) - set(TARGETS):
        parser.error(f"unknown: {', '.join(sorted(strange))}; there are {', '.join(TARGETS)}")
    names = given.targets or list(TARGETS)
    seconds = 60.0 * given.minutes / len(names)
    print("by coverage (atheris)" if guided else "at random (hypothesis)", flush=True)
    failed = []
    for name in names:
        # In a process of its own: atheris ends the one that it runs in.
        own = ["--here", "--minutes", str(seconds / 60.0), name]
        code = subprocess.run([sys.executable, "-m", "tests.fuzz", *own]).returncode
        print(f"{name}: {'FAILED' if code else 'nothing found'}", flush=True)
        failed += [name] if code else []
    return 1 if failed else 0


def _keep(name: str, data: bytes) -> None:
    place = CORPUS / name / hashlib.sha256(data).hexdigest()[:12]
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(data)
    print(f"kept as {place}", flush=True)


def _by_coverage(name: str, seconds: float) -> None:
    atheris: Any = import_module("atheris")  # only `make fuzz` installs it
    with atheris.instrument_imports(include=["penstock"]):
        from tests.fuzz.targets import TARGETS, check
    target = TARGETS[name]

    def run(data: bytes) -> None:
        try:
            check(target, data)
        except Exception:
            _keep(name, data)
            raise

    seeds = CORPUS.parent / ".seeds" / name
    seeds.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (seeds / f"seed-{number}").write_bytes(seed)
    words = seeds.parent / f"{name}.dict"
    short = [token for token in target.tokens if len(token) < 60]
    words.write_text("".join(f'"{_escaped(token)}"\n' for token in short))
    options = [f"-max_total_time={round(seconds)}", "-rss_limit_mb=1024", "-timeout=30"]
    options += [f"-dict={words}", "-artifact_prefix=/dev/null", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(seeds)], run)
    atheris.Fuzz()


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{byte:02X}" for byte in token)


def _at_random(name: str, seconds: float) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    from tests.fuzz.mutation import mutated
    from tests.fuzz.targets import TARGETS, check

    target, end_s = TARGETS[name], now_s() + seconds
    last = b""

    @settings(
        max_examples=200, deadline=None, database=None, derandomize=False,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    @given(st.data())
    def fuzz(drawn: st.DataObject) -> None:
        nonlocal last
        data = drawn.draw(mutated(target))
        try:
            check(target, data)
        except Exception:
            last = data
            raise

    while now_s() < end_s:
        try:
            fuzz()
        except Exception:
            traceback.print_exc()
            _keep(name, last)
            sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
