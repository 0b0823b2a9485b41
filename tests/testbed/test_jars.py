"""Jars are fetched once, whole or not at all, by the real Ivy; the network is never used here."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.testbed import jars as jars_module
from penstock.testbed.jars import (
    BROKER,
    CONNECTORS,
    HADOOP,
    JarSet,
    cache_directory,
    connector,
    fetch,
    missing,
    pinned,
)
from penstock.testbed.java import JavaRuntime, find_java

NO_JAVA = JavaRuntime(Path("/nowhere"), 17)
DEMO = JarSet("the demo", ("org.example:demo:1.0",), transitive=False)

SETTINGS = """<ivysettings>
  <settings defaultResolver="shelf"/>
  <resolvers><filesystem name="shelf">
    <artifact pattern="{repository}/[artifact]-[revision].[ext]"/>
  </filesystem></resolvers>
</ivysettings>"""


WRONG = "arrived damaged or changed: its SHA-256 is not the pinned one"


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def pin_demo(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repository has the jar of the demo, and it is pinned."""
    make_jar(repository / "demo-1.0.jar")
    hashes = {"demo-1.0.jar": hash_of(repository / "demo-1.0.jar")}
    monkeypatch.setattr(jars_module, "pinned", lambda: hashes)


def make_jar(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that Ivy takes for the only repository there is."""
    place = tmp_path / "repository"
    place.mkdir()
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(repository=place))
    monkeypatch.setenv("PENSTOCK_IVY_SETTINGS", str(settings))
    return place


def test_jars_in_the_cache_need_neither_java_nor_a_network(tmp_path: Path) -> None:
    ready = tmp_path / "jars" / BROKER.roots[0]
    ready.mkdir(parents=True)
    said: list[str] = []
    assert fetch(BROKER, NO_JAVA, tmp_path, said.append) == ready
    assert said == []


def test_the_cache_is_in_the_users_cache_directory() -> None:
    assert cache_directory({}) == Path.home() / ".cache" / "penstock"
    assert cache_directory({"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache" / "penstock"


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"cannot write jars to .*: point XDG_CACHE_HOME elsewhere"
    ):
        fetch(DEMO, NO_JAVA, tmp_path / "file")


@pytest.mark.parametrize(
    ("pyspark", "scala"), [("3.5", "2.12"), ("4.0", "2.13"), ("4.1", "2.13"), ("4.2", "2.13")]
)
def test_a_connector_is_named_with_all_that_pyspark_lacks(pyspark: str, scala: str) -> None:
    roots = connector(f"{pyspark}.9").roots
    assert roots[0].rpartition("-")[2].startswith(f"{pyspark}.")
    assert [root.rpartition("-")[0] for root in roots] == [
        f"spark-sql-kafka-0-10_{scala}",
        f"spark-token-provider-kafka-0-10_{scala}",
        "kafka-clients",
        "commons-pool2",
    ]


def test_a_damaged_jar_is_thrown_away_so_that_the_next_try_gets_it_again(tmp_path: Path) -> None:
    jar = tmp_path / "demo-1.0.jar"
    jar.write_bytes(b"<html>busy, come back later</html>")
    assert missing(DEMO, tmp_path) == f"{jar.name} {WRONG}"
    assert missing(DEMO, tmp_path) == "demo-1.0.jar did not arrive"
    make_jar(jar)
    assert missing(DEMO, tmp_path, {jar.name: hash_of(jar)}) == ""


def test_a_jar_that_somebody_changed_or_added_is_refused(tmp_path: Path) -> None:
    jar, other = tmp_path / "demo-1.0.jar", tmp_path / "other-2.0.jar"
    make_jar(jar)
    hashes = {jar.name: hash_of(jar)}
    with zipfile.ZipFile(jar, "a") as archive:
        archive.writestr("Evil.class", b"...")
    assert missing(DEMO, tmp_path, hashes) == f"{jar.name} {WRONG}"
    make_jar(jar)
    hashes = {jar.name: hash_of(jar)}
    make_jar(other)
    assert missing(DEMO, tmp_path, hashes) == f"{other.name} {WRONG}"
    assert missing(DEMO, tmp_path, hashes) == ""


def test_the_roots_of_all_sets_are_pinned() -> None:
    roots = [root for jars in (BROKER, *CONNECTORS.values(), HADOOP) for root in jars.roots]
    assert [root for root in roots if f"{root}.jar" not in pinned()] == []
    assert all(len(digest) == 64 for digest in pinned().values())


@pytest.mark.slow
@pytest.mark.usefixtures("pin_demo")
def test_a_set_is_fetched_once_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        place = fetch(DEMO, find_java(), tmp_path / "cache", said.append)
        assert [path.name for path in place.iterdir()] == ["demo-1.0.jar"]
    assert [line.split(" (")[0] for line in said] == [
        "fetching the jars of the demo",
        "fetched 1 jars of the demo",
    ]
    assert sorted(path.name for path in place.parent.iterdir()) == [".lock", "demo-1.0"]


@pytest.mark.slow
@pytest.mark.usefixtures("pin_demo")
def test_a_jar_that_is_not_there_is_tried_again_and_then_named(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars_module, "TRIES", 2)
    (repository / "demo-1.0.jar").rename(tmp_path / "away.jar")
    with pytest.raises(
        ConfigError, match=r"the demo in 2 tries: org\.example#demo;1\.0: not found"
    ):
        fetch(DEMO, find_java(), tmp_path / "cache", lambda _: None)
    (tmp_path / "away.jar").rename(repository / "demo-1.0.jar")
    assert fetch(DEMO, find_java(), tmp_path / "cache", lambda _: None).is_dir()
