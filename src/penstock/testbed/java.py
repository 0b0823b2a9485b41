"""Finding a Java that Spark runs on, or installing one where that is ours to do."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.core.errors import ConfigError

OLDEST = 17
# Hadoop up to 3.4.1, which PySpark 3.5 and 4.0 carry, asks the security manager who the user is;
# Java 23 and later refuse to answer, and no session starts.
NEWEST = {"3.5": 22, "4.0": 22}
# Spark 4 is built on it, and trimmed runtimes leave it out.
NEEDED_MODULE = "jdk.incubator.vector"
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
INSTALLED_UNDER = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"))


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """A Java runtime: where it is and its feature version, such as 17."""

    home: Path
    version: int

    @property
    def executable(self) -> str:
        return str(self.home / "bin" / "java")


def pyspark_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        raise ConfigError(
            "PySpark is not installed: install Penstock with its extra, penstock[spark]"
        ) from None


def find_java(environment: Mapping[str, str] | None = None) -> JavaRuntime:
    """The first suitable Java of JAVA_HOME, the PATH and the places where systems put them."""
    variables = os.environ if environment is None else environment
    newest = NEWEST.get(".".join(pyspark_version().split(".")[:2]))
    wanted = f"Java {OLDEST} to {newest}" if newest else f"Java {OLDEST} or newer"
    refused = []
    for executable in candidates(variables):
        java, refusal = examine(executable, newest)
        if java is not None:
            return java
        refused.append(f"{executable} {refusal}")
    found = f", and {'; '.join(refused)}" if refused else ""
    raise ConfigError(
        f"Spark needs {wanted}{found}: install one (Debian and Ubuntu: "
        f"apt-get install {PACKAGES[0]}) or point JAVA_HOME at it"
    )


def candidates(variables: Mapping[str, str]) -> Iterator[Path]:
    """Executables named java, the user's own choice first."""
    if home := variables.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=variables.get("PATH", "")):
        yield Path(on_path)
    for place in INSTALLED_UNDER:
        yield from sorted(place.glob("*/bin/java"))
        yield from sorted(place.glob("*/Contents/Home/bin/java"))


def examine(executable: Path, newest: int | None) -> tuple[JavaRuntime | None, str]:
    """The Java there, or what is wrong with it; it is asked and not guessed from its path."""
    try:
        words = _say(executable, "-XshowSettings:properties", "-version")
        home = re.search(r"java\.home = (.+)", words)
        number = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", words)
        if home is None or number is None:
            return None, "does not say its version"
        feature = int(number[1])
        if feature < OLDEST or (newest is not None and feature > newest):
            return None, f"is Java {feature}"
        if NEEDED_MODULE not in _say(executable, "--list-modules"):
            return None, f"lacks the module {NEEDED_MODULE}"
    except (OSError, subprocess.TimeoutExpired):
        return None, "does not run"
    return JavaRuntime(Path(home[1].strip()), feature), ""


def _say(executable: Path, *question: str) -> str:
    done = _run([str(executable), *question], timeout_s=30.0)
    return done.stdout + done.stderr


def tell_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def ensure_java() -> JavaRuntime:
    """A Java, installed now if there is none and we are root on Debian or Ubuntu."""
    try:
        return find_java()
    except ConfigError:
        installer = shutil.which("apt-get")
        if installer is None or os.geteuid() != 0:
            raise
    apt(installer, "update")
    for package in PACKAGES:
        if _run([installer, "install", "--simulate", package]).returncode == 0:
            tell_stderr(f"installing {package} (once) ...")
            apt(installer, "install", "--yes", "--no-install-recommends", package)
            return find_java()
    raise ConfigError(
        f"this system offers none of {', '.join(PACKAGES)}: install a Java {OLDEST} by hand and "
        "point JAVA_HOME at it"
    )


def apt(installer: str, *arguments: str) -> None:
    done = _run([installer, "-qq", *arguments])
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(f"apt-get {arguments[0]} failed: {reason}")


def _run(argv: list[str], timeout_s: float = 900.0) -> subprocess.CompletedProcess[str]:
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(argv, capture_output=True, text=True, env=quiet, timeout=timeout_s)
