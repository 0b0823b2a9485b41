"""What Kubernetes needs of this machine, and its servers, built once from their Go modules."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock.core.errors import ConfigError
from penstock.testbed.jars import alone, cache_directory
from penstock.testbed.processes import cause

SOURCES = Path(__file__).parent / "kube"
PACKAGES = "containerd runc containernetworking-plugins iproute2"
PROGRAMS = ("containerd", "ctr", "runc", "ip", "unshare")
PLUGINS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
BUILT_FROM = {".go", ".mod", ".sum"}
CGROUPS = Path("/sys/fs/cgroup")
BUILD_TIMEOUT_S = 3600.0


def missing() -> str:
    """What keeps this machine from running Kubernetes, in one sentence; empty if nothing does."""
    needs = "a Kubernetes cluster needs"
    if sys.platform != "linux":
        return f"{needs} Linux"
    if os.geteuid() != 0:
        return f"{needs} root, for control groups and network namespaces"
    if not any(os.access(each, os.W_OK) for each in (CGROUPS / "cgroup.procs", CGROUPS / "memory")):
        return f"{needs} control groups that can be written, in {CGROUPS}"
    if absent := [each for each in PROGRAMS if shutil.which(each) is None]:
        return f"{needs} {', '.join(absent)} (Debian and Ubuntu: apt-get install {PACKAGES})"
    if not any((each / "bridge").exists() for each in PLUGINS):
        return f"{needs} the CNI plugin bridge in {PLUGINS[0]} (apt-get install {PACKAGES})"
    if not _built().is_dir() and shutil.which("go") is None:
        return f"{needs} Go 1.24 or newer to build its servers once"
    probe = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    if refusal := subprocess.run(probe, capture_output=True, text=True).stderr.strip():
        return f"{needs} mount and process namespaces ({refusal})"
    return ""


def plugins() -> Path:
    return next(each for each in PLUGINS if (each / "bridge").exists())


def build(say: Callable[[str], None], timeout_s: float = BUILD_TIMEOUT_S) -> Path:
    """The directory with the programs ``kube`` and ``pause``, filled first if it is not there."""
    ready = _built()
    if ready.is_dir():
        return ready
    with alone(ready.parent):
        if not ready.is_dir():  # else another process built it while we waited
            say(f"building the servers of Kubernetes (once, into {ready.parent}) ...")
            _build(ready, timeout_s)
    return ready


def _built() -> Path:
    """Where the programs are, by what they are built from."""
    content = b"".join(
        path.read_bytes() for path in sorted(SOURCES.rglob("*")) if path.suffix in BUILT_FROM
    )
    return cache_directory() / "kube" / hashlib.sha256(content).hexdigest()[:12]


def _build(ready: Path, timeout_s: float) -> None:
    work = ready.with_name(f".{ready.name}")
    # The caches of a build are 5 GB that nobody needs again, unless the user keeps his own.
    own = {"GOCACHE": str(work / "cache"), "GOMODCACHE": str(work / "modules")}
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false -trimpath"}
    argv = ["go", "build", "-C", str(SOURCES), "-ldflags=-s -w"]
    argv += ["-o", f"{work / 'bin'}/", ".", "./pause"]
    environment = own | dict(os.environ) | fixed
    (work / "bin").mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"the build of Kubernetes took more than {timeout_s:.0f} s") from None
    if done.returncode != 0:
        raise ConfigError(f"the build of Kubernetes failed: {cause(done.stderr)}")
    (work / "bin").rename(ready)
    shutil.rmtree(work, ignore_errors=True)
