"""Java is found, judged and installed; the machine's own is never touched."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.testbed import java as java_module
from penstock.testbed.java import candidates, ensure_java, find_java

GOOD = "java.base@17 jdk.incubator.vector@17"


def make_java(home: Path, version: str, modules: str = GOOD) -> Path:
    """A script that answers the two questions as a Java would."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --list-modules ] && echo "{modules}" && exit\n'
        f'echo "    java.home = {home}" >&2\n'
        f'echo "    java.specification.version = {version}" >&2\n'
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "INSTALLED_UNDER", ())
    monkeypatch.setattr(java_module, "pyspark_version", lambda: "4.0.5")


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    mine, other = make_java(tmp_path / "mine", "21"), make_java(tmp_path / "other", "17")
    found = find_java({"JAVA_HOME": str(mine), "PATH": str(other / "bin")})
    assert (found.home, found.version) == (mine, 21)
    assert found.executable == str(mine / "bin" / "java")


def test_an_old_java_home_is_passed_over_for_a_good_one_on_the_path(tmp_path: Path) -> None:
    old, good = make_java(tmp_path / "old", "1.8"), make_java(tmp_path / "good", "17")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(good / "bin")}).home == good


def test_java_in_the_place_of_the_system_is_found_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_java(tmp_path / "jvm" / "java-17", "17")
    monkeypatch.setattr(java_module, "INSTALLED_UNDER", (tmp_path / "jvm",))
    assert list(candidates({"PATH": ""})) == [home / "bin" / "java"]
    assert find_java({"PATH": ""}).home == home


def test_no_java_says_what_to_install() -> None:
    with pytest.raises(ConfigError) as caught:
        find_java({"PATH": ""})
    assert str(caught.value) == (
        "Spark needs Java 17 to 22: install one (Debian and Ubuntu: apt-get install "
        "openjdk-17-jre-headless) or point JAVA_HOME at it"
    )


@pytest.mark.parametrize(
    ("version", "modules", "refusal"),
    [
        ("1.8", GOOD, "is Java 8"),
        ("11", GOOD, "is Java 11"),
        ("25", GOOD, "is Java 25"),
        ("17", "java.base@17", "lacks the module jdk.incubator.vector"),
    ],
)
def test_a_java_that_does_not_do_is_named_with_the_reason(
    tmp_path: Path, version: str, modules: str, refusal: str
) -> None:
    home = make_java(tmp_path / "java", version, modules)
    with pytest.raises(ConfigError, match=f"Spark needs Java 17 to 22, and .*bin/java {refusal}:"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})


def test_a_java_home_that_is_empty_does_not_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bin/java does not run: install"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def fake_system(directory: Path, *, offers: str, install: str) -> Path:
    """A PATH whose apt-get knows one package, and notes how it was called."""
    directory.mkdir()
    program = directory / "apt-get"
    program.write_text(
        f'#!/bin/sh\necho "$@" >> {directory}/calls\n'
        f'case "$*" in\n'
        f"  *simulate*{offers}) exit 0;;\n"
        f"  *simulate*) exit 100;;\n"
        f"  *install*) {install};;\n"
        f"esac\n"
    )
    program.chmod(0o755)
    return directory


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.usefixtures("as_root")
def test_root_on_debian_gets_the_first_package_that_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = make_java(tmp_path / "made", "21") / "bin" / "java"
    system = tmp_path / "system"
    fake_system(system, offers="21-jre-headless", install=f"/bin/ln -s {made} {system}/java")
    monkeypatch.setenv("PATH", str(system))
    assert ensure_java().version == 21
    assert capsys.readouterr().err == "installing openjdk-21-jre-headless (once) ...\n"
    assert (system / "calls").read_text().splitlines()[-1] == (
        "-qq install --yes --no-install-recommends openjdk-21-jre-headless"
    )


@pytest.mark.usefixtures("as_root")
def test_an_installation_that_fails_gives_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = "echo 'E: no space left' >&2; exit 100"
    system = fake_system(tmp_path / "system", offers="17-jre-headless", install=failing)
    monkeypatch.setenv("PATH", str(system))
    with pytest.raises(ConfigError, match="apt-get install failed: E: no space left"):
        ensure_java()


@pytest.mark.usefixtures("as_root")
def test_a_system_without_the_packages_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fake_system(tmp_path / "system", offers="nothing", install="true")
    monkeypatch.setenv("PATH", str(system))
    with pytest.raises(ConfigError, match="offers none of openjdk-17-jre-headless"):
        ensure_java()


def test_others_than_root_are_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = fake_system(tmp_path / "system", offers="17-jre-headless", install="true")
    monkeypatch.setenv("PATH", str(system))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="apt-get install openjdk-17-jre-headless"):
        ensure_java()
    assert not (system / "calls").exists()


def test_importing_the_testbed_imports_neither_spark_nor_kafka() -> None:
    program = (
        "import sys, penstock.testbed; "
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'confluent_kafka')))"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", program]) == 0
