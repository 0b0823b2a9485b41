"""The journal's disk and the checkpoint's."""

from __future__ import annotations

import os

from tests.chaos.faults.table import fault
from tests.chaos.scene import Scene
from tests.survival.scene import passes_s

MISSED = "turns go on; it is logged once, and what is missing is logged at the end"


def _cannot_be_written(scene: Scene) -> None:
    scene.wait(lambda: scene.warned("the journal cannot be written"), "it was not said")
    scene.turns(5)


def _can_be_written(scene: Scene) -> None:
    back = "the journal can be written again, without"
    scene.wait(lambda: any(back in text for _, text in scene.log()), "it was not said at the end")


@fault(MISSED, spoils_journal=True, needs_root=True)
def journal_disk_full(scene: Scene) -> None:
    """The journal's disk is full for five turns."""
    filler = scene.journal_disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass  # no space is left
    try:
        _cannot_be_written(scene)
    finally:
        filler.unlink()
    _can_be_written(scene)


@fault(MISSED, spoils_journal=True, needs_root=True)
def journal_read_only(scene: Scene) -> None:
    """The journal's disk is replaced by an empty read-only one for five turns."""
    place = str(scene.journal_disk)
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place]
    with scene.command(mount, ["umount", "-l", place]):
        _cannot_be_written(scene)
    _can_be_written(scene)


@fault("turns go on; a new one is begun", spoils_journal=True)
def journal_deleted(scene: Scene) -> None:
    """The journal is deleted."""
    scene.journal.unlink()
    scene.turns(3)
    assert scene.journal.exists(), "there is no new journal"


@fault("turns go on; the lines before and after are readable", spoils_journal=True)
def journal_truncated(scene: Scene) -> None:
    """The journal is cut in the middle of a line."""
    os.truncate(scene.journal, scene.journal.stat().st_size * 2 // 3)
    scene.turns(3)


@fault(
    "the query waits; turns go on; nothing is counted twice",
    is_outage=True, needs_root=True, moves_load=True,
)  # fmt: skip
def checkpoint_frozen(scene: Scene) -> None:
    """The checkpoint's file system is frozen for 15 s, while the load changes."""
    place = str(scene.checkpoint_disk)
    with scene.command(["fsfreeze", "-f", place], ["fsfreeze", "-u", place]):
        scene.another_load()
        passes_s(15.0)
        scene.turns(2)
