"""The jars that PySpark does not carry: fetched by coordinates, once, then used offline.

PySpark carries Ivy, which knows the public repository. A set of jars is moved into the cache when
it is whole. Each jar must have the hash that `jars.sha256` pins, wherever it came from.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

from msgspec import toml

from penstock.core.errors import ConfigError
from penstock.testbed.java import JavaRuntime, pyspark_version, tell_stderr
from penstock.testbed.processes import Processes, wait_until

TRIES = 5  # a slow repository loses single files; a later try goes on from what is there
TRY_TIMEOUT_S = 600.0
JARS_PER_LINE = 10
OWN_SETTINGS = "PENSTOCK_IVY_SETTINGS"


@dataclass(frozen=True, slots=True)
class JarSet:
    """Jars that belong together: ``organisation:name:revision`` of each root."""

    name: str
    coordinates: tuple[str, ...]
    transitive: bool  #: Whether what the roots depend on comes along.

    @property
    def roots(self) -> list[str]:
        """The file names of the roots, without their ending; the first names its folder too.

        >>> BROKER.roots
        ['kafka_2.13-4.1.1', 'slf4j-simple-1.7.36']
        """
        return ["-".join(each.split(":")[1:]) for each in self.coordinates]

    def order(self) -> str:
        """The set as Ivy reads it."""
        form = '<dependency org="{}" name="{}" rev="{}" conf="default->default" transitive="{}"/>\n'
        how = str(self.transitive).lower()
        wanted = "".join(form.format(*each.split(":"), how) for each in self.coordinates)
        return (
            '<ivy-module version="2.0"><info organisation="penstock" module="testbed"/>\n'
            '<configurations><conf name="default"/></configurations>\n'
            f"<dependencies>\n{wanted}</dependencies></ivy-module>"
        )


_SETS = toml.decode(Path(__file__).with_name("jars.toml").read_bytes(), type=dict[str, JarSet])
BROKER, HADOOP = _SETS["broker"], _SETS["hadoop"]
#: By minor version of PySpark, which carries all else that they need.
CONNECTORS = {minor: _SETS[f"connector-{minor}"] for minor in ("3.5", "4.0", "4.1", "4.2")}
CONNECTORS["4.3"] = CONNECTORS["4.2"]  # none of its own can be fetched yet


def connector(pyspark: str) -> JarSet:
    """The Kafka connector for a version of PySpark.

    >>> connector("4.0.5").name
    "Spark's Kafka connector 4.0.0"
    >>> connector("4.9.0")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: no Kafka connector is known to work with PySpark 4.9.0: ...
    """
    minor = ".".join(pyspark.split(".")[:2])
    if minor not in CONNECTORS:
        raise ConfigError(
            f"no Kafka connector is known to work with PySpark {pyspark}: install "
            f"{' or '.join(f'pyspark=={known}.*' for known in CONNECTORS)}, or run the testbed "
            "without Kafka"
        )
    return CONNECTORS[minor]


def cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where fetched jars stay.

    >>> cache_directory({"XDG_CACHE_HOME": "/var/cache/me"}).as_posix()
    '/var/cache/me/penstock'
    """
    variables = os.environ if environment is None else environment
    # The specification says that a relative path is to be ignored.
    base = Path(variables.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "penstock"


def spark_home() -> Path:
    """The Spark inside the PySpark package, found without importing it."""
    pyspark_version()  # says what to install where there is none
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def checkpoint_manager() -> str:
    """The class that writes checkpoints through Hadoop's `FileSystem`; its package has moved.

    Spark's default goes through `FileContext`, which starts about ten processes (``chmod``,
    ``readlink``) for each file on a local disk. A join has four such files per state partition: its
    last stage took 7.0 core-seconds per batch instead of 2.6 (six partitions, two cores).

    >>> checkpoint_manager().rpartition(".")[2]
    'FileSystemBasedCheckpointFileManager'
    """
    jar = next((spark_home() / "jars").glob("spark-sql_*.jar"))
    with ZipFile(jar) as classes:
        ending = "/FileSystemBasedCheckpointFileManager.class"
        path = next(name for name in classes.namelist() if name.endswith(ending))
    return path.removesuffix(".class").replace("/", ".")


def fetch(
    jars: JarSet,
    java: JavaRuntime,
    cache: Path | None = None,
    say: Callable[[str], None] = tell_stderr,
) -> Path:
    """The directory with these jars, filled first if it is not there."""
    shelf = (cache or cache_directory()) / "jars"
    ready = shelf / jars.roots[0]
    if ready.is_dir():
        return ready
    with alone(shelf):
        if not ready.is_dir():  # else another process fetched it while we waited
            say(f"fetching the jars of {jars.name} (once, into {shelf}) ...")
            count = resolve(jars, java, shelf, say)
            say(f"fetched {count} jars of {jars.name}")
    return ready


@contextmanager
def alone(shelf: Path) -> Iterator[None]:
    """One process at a time fetches; the others wait and then find what they need."""
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        lock = (shelf / ".lock").open("w")
    except OSError as error:
        raise ConfigError(
            f"cannot write jars to {shelf} ({error.strerror}): point XDG_CACHE_HOME elsewhere"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def resolve(jars: JarSet, java: JavaRuntime, shelf: Path, say: Callable[[str], None]) -> int:
    """Let Ivy fetch the set until it is whole; the number of jars."""
    partial = shelf / f".{jars.roots[0]}"
    (partial / "lib").mkdir(parents=True, exist_ok=True)
    (partial / "ivy.xml").write_text(jars.order())
    for _ in range(TRIES):
        problem = ask_ivy(java, partial, say) or missing(jars, partial / "lib")
        if not problem:
            (partial / "lib").rename(shelf / jars.roots[0])
            shutil.rmtree(partial)
            return len(list((shelf / jars.roots[0]).glob("*.jar")))
    raise ConfigError(
        f"cannot fetch the jars of {jars.name} in {TRIES} tries: {problem}; check the network, or "
        f"name your own repository in an Ivy settings file with {OWN_SETTINGS}"
    )


def ask_ivy(java: JavaRuntime, partial: Path, say: Callable[[str], None]) -> str:
    """One try; what went wrong, or nothing. What was fetched stays for the next."""
    programs = sorted((spark_home() / "jars").glob("ivy-*.jar"))
    if not programs:
        return "this PySpark carries no Ivy"
    settings = os.environ.get(OWN_SETTINGS)
    argv = [java.executable, "-jar", str(programs[-1])]
    argv += ["-settings", settings] if settings else []
    argv += ["-cache", str(partial / "cache"), "-ivy", str(partial / "ivy.xml")]
    # Six of the broker's jars call themselves bundles.
    argv += ["-confs", "default", "-types", "jar", "bundle"]
    argv += ["-retrieve", str(partial / "lib" / "[artifact]-[revision].[ext]")]
    (partial / "ivy.log").unlink(missing_ok=True)
    with Processes(partial) as processes:
        ivy = processes.start("ivy", argv, os.environ)
        announced = 0

        def ended() -> bool:
            nonlocal announced
            arrived = ivy.log.read_text(errors="replace").count("[SUCCESSFUL ]")
            if arrived >= announced + JARS_PER_LINE:
                announced = arrived
                say(f"  {arrived} jars so far ...")
            return not ivy.running()

        try:
            wait_until(ended, TRY_TIMEOUT_S, "Ivy", every_s=0.25)
        except TimeoutError:
            return f"no end after {TRY_TIMEOUT_S:g} s"
    return ivy_error(ivy.log.read_text(errors="replace"))


def ivy_error(output: str) -> str:
    """What Ivy says went wrong; its exit code misses files that it could not get.

    >>> ivy_error(":: loading settings :: url = jar ... found a#b;1 in public")
    ''
    >>> ivy_error(":: org.apache.kafka#kafka_2.13;4.1.1: not found")
    'org.apache.kafka#kafka_2.13;4.1.1: not found'
    """
    signs = ("UnknownHostException", ": not found", "FAILED", "UNRESOLVED")
    found = (line for sign in signs for line in output.splitlines() if sign in line)
    return next(found, "").strip(" \t:")


@cache
def pinned() -> dict[str, str]:
    """The SHA-256 of each jar that may be fetched, by its name."""
    lines = Path(__file__).with_name("jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def missing(jars: JarSet, library: Path, hashes: Mapping[str, str] | None = None) -> str:
    """Which jar is not there or is not the one that is pinned, or nothing."""
    hashes = pinned() if hashes is None else hashes
    for root in jars.roots:
        if not (library / f"{root}.jar").is_file():
            return f"{root}.jar did not arrive"
    for path in sorted(library.glob("*.jar")):
        if hashlib.sha256(path.read_bytes()).hexdigest() != hashes.get(path.name):
            path.unlink()
            return f"{path.name} arrived damaged or changed: its SHA-256 is not the pinned one"
    return ""
