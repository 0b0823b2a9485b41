"""Parts of the clusters that need no cluster: what is missing, images, settings, bad input."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.testbed import Testbed
from penstock.testbed.clusters import images, kube_build
from penstock.testbed.clusters.cluster import settings_of

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="Kubernetes nodes need Linux")


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@linux_only
def test_what_kubernetes_lacks_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "needs root" in kube_build.missing()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(kube_build, "CGROUPS", tmp_path)
    assert f"control groups that can be written, in {tmp_path}" in kube_build.missing()
    (tmp_path / "memory").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "needs containerd, ctr, runc, ip, unshare (Debian" in kube_build.missing()
    for name in kube_build.PROGRAMS:
        program(tmp_path / name, "exit 0")
    monkeypatch.setattr(kube_build, "PLUGINS", (tmp_path / "cni",))
    assert f"needs the CNI plugin bridge in {tmp_path / 'cni'}" in kube_build.missing()
    (tmp_path / "cni" / "bridge").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "needs Go 1.24 or newer" in kube_build.missing()
    program(tmp_path / "go", "exit 0")
    assert kube_build.missing() == ""
    program(tmp_path / "unshare", "echo 'unshare failed: Operation not permitted' >&2; exit 1")
    assert "process namespaces (unshare failed: Operation not permitted)" in kube_build.missing()


def test_a_build_that_fails_says_why_and_leaves_no_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "go", "echo 'error: no route to the modules' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    with pytest.raises(ConfigError, match="failed: no route to the modules"):
        kube_build.build(said.append)
    assert said[0].startswith("building the servers of Kubernetes (once, into ")
    assert [path.name for path in (tmp_path / "penstock" / "kube").glob("[!.]*")] == []


def test_a_build_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "go", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="the build of Kubernetes took more than 0 s"):
        kube_build.build(print, timeout_s=0.1)


def test_the_image_of_executors_leads_to_the_files_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "pause").write_bytes(b"program")
    images.write_images(tmp_path, tmp_path / "pause")
    with tarfile.open(tmp_path / "executor.tar") as archive:
        parts = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
    manifest, config = json.loads(parts["manifest.json"]), json.loads(parts["config.json"])
    assert manifest[0]["RepoTags"] == [images.EXECUTOR]
    digest = hashlib.sha256(parts["layer.tar"]).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    with tarfile.open(fileobj=io.BytesIO(parts["layer.tar"])) as layer:
        found = {each.name: each for each in layer}
    assert config["config"]["Entrypoint"] == ["/entry.sh"]
    assert found["entry.sh"].mode == found["opt/decom.sh"].mode == 0o755
    assert found["usr"].linkname == "/host/usr"
    assert found["proc"].isdir()
    assert "etc/hosts" not in found  # each container has its own


def test_every_name_in_the_settings_is_filled_in() -> None:
    class Filled(dict[str, object]):
        def __missing__(self, name: str) -> str:
            used.add(name)
            return "1"

    used: set[str] = set()
    assert "$" not in json.dumps(settings_of("yarn", Filled()))
    assert "$" not in json.dumps(settings_of("kubernetes", Filled()))
    assert {"loopback", "directory", "token", "room_mib"} <= used


def test_clusters_and_nodes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"one of standalone, yarn, kubernetes, not 'mesos'"):
        Testbed(cluster="mesos")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="nodes must be between 1 and the 2 slots, not 3"):
        Testbed(slots=2, nodes=3)
