"""Container images without a registry: archives in Docker's format, written here.

The image for executors holds no program. It mounts the file system of this machine under ``/host``
and leads to it by links, so that executors find the Java, the Python, the jars and the checkpoints
that the driver has, under the same names.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterator
from pathlib import Path

from penstock.testbed.clusters.kube_build import SOURCES

PAUSE, EXECUTOR = "localhost/penstock-pause:1", "localhost/penstock-executor:1"
#: What each container has of its own, by folder; the rest are links.
OWN = {
    "": {"dev", "etc", "host", "opt", "proc", "run", "sys", "var"},
    "etc": {"hostname", "hosts", "mtab", "resolv.conf"},
    "opt": {"decom.sh"},
    "var": {"run"},
}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_images(directory: Path, pause: Path) -> None:
    """The images of executors, and of the container that holds a pod's network."""
    _write_archive(directory / "pause.tar", PAUSE, "/pause", [_file("pause", pause.read_bytes())])
    _write_archive(directory / "executor.tar", EXECUTOR, "/entry.sh", list(_executor_layer()))


def _executor_layer() -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for name in sorted(OWN[""]):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        yield folder, b""
    yield _file("entry.sh", (SOURCES / "entry.sh").read_bytes())
    yield _file("opt/decom.sh", (SOURCES / "decom.sh").read_bytes())
    for parent, own in OWN.items():
        for path in sorted(Path("/", parent).glob("*")):
            if path.name not in own:
                link = tarfile.TarInfo(f"{parent}/{path.name}".lstrip("/"))
                link.type, link.linkname = tarfile.SYMTYPE, f"/host{path}"
                yield link, b""


def _file(name: str, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.mode, member.size = 0o755, len(content)
    return member, content


def _write_archive(
    archive: Path, name: str, entry: str, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    layer = _tar(members)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [entry]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    parts = {
        "config.json": json.dumps(config).encode(),
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    archive.write_bytes(_tar([_file(part, content) for part, content in parts.items()]))


def _tar(members: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()
