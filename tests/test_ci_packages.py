"""What CI installs for the tests, with an `apt-get` that only says what it was asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "packages"
#: All that the script may call.
TOOLS = ("bash", "env", "mktemp", "tail", "rm", "chmod")
PROGRAMS = ("chromium", "prometheus", "containerd", "runc", "ip")
PACKAGES = (*PROGRAMS[:-1], "iproute2", "containernetworking-plugins")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="packages are installed as root only")


def install(place: Path, apt_get: str | None, *there: str) -> subprocess.CompletedProcess[str]:
    """Run the script on a machine that has only these programs."""
    for name in TOOLS:
        (place / name).symlink_to(str(shutil.which(name)))
    own = {"apt-get": apt_get} | dict.fromkeys(there, "exit 0")
    for name, text in own.items():
        if text is not None:
            (place / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
            (place / name).chmod(0o755)
    environment = {"PATH": str(place), "POLICY_RC_D": str(place / "policy"), "PLACE": str(place)}
    environment["CNI_PLUGINS"] = str(place)
    argv = [str(place / "bash"), str(SCRIPT)]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def test_what_is_missing_is_installed_and_no_service_may_start(tmp_path: Path) -> None:
    # The policy that Debian asks says 101: do not start; it is gone afterwards.
    apt_get = '"$PLACE/policy"; echo "$? $DEBIAN_FRONTEND ${*:5}" >>"$PLACE/asked"'
    done = install(tmp_path, apt_get)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    order = "install --quiet --yes --no-install-recommends"
    assert (tmp_path / "asked").read_text().splitlines() == [
        "101 noninteractive update --quiet",
        *(f"101 noninteractive {order} {package}" for package in PACKAGES),
    ]
    assert not (tmp_path / "policy").exists()


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    done = install(tmp_path, "exit 7", *PROGRAMS, "bridge")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_package_that_cannot_be_had_does_not_keep_the_others_away(tmp_path: Path) -> None:
    apt_get = """[[ $* != *runc ]] || { echo 'E: no runc' >&2; exit 100; }
        echo "${*: -1}" >>"$PLACE/asked"
    """
    done = install(tmp_path, apt_get, "bridge")
    sentence = "cannot install runc (E: no runc): its tests will be skipped\n"
    assert (done.returncode, done.stderr) == (0, sentence)
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["--quiet", "chromium", "prometheus", "containerd", "iproute2"]


@pytest.mark.parametrize(
    ("apt_get", "sentence"),
    [
        (
            "echo 'E: no network' >&2; exit 100",
            "cannot install prometheus (E: no network): its tests will be skipped\n",
        ),
        (
            None,
            "no prometheus: only root can install it, with apt-get; its tests will be skipped\n",
        ),
    ],
)
def test_what_cannot_be_installed_is_one_sentence_and_no_failure(
    tmp_path: Path, apt_get: str | None, sentence: str
) -> None:
    there = set(PROGRAMS) - {"prometheus"}
    done = install(tmp_path, apt_get, *there, "bridge")
    assert (done.returncode, done.stderr) == (0, sentence)
    assert not (tmp_path / "policy").exists()
