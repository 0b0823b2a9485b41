"""The driver, its two processes, the query and the scaler."""

from __future__ import annotations

from tests.chaos.faults.table import fault
from tests.chaos.policy import MAX, MIN
from tests.chaos.scene import Scene
from tests.survival.scene import passes_s

GOES_ON = "it goes on from checkpoint and journal, and decides as the first would have"


def _killed_towards(scene: Scene, executors: int) -> None:
    scene.load(executors)
    scene.wait_status("no rescale began", target=executors, every_s=0.05)
    scene.kill_driver()
    scene.start_driver()


@fault(GOES_ON, begins=MIN, moves_load=True)
def driver_killed_growing(scene: Scene) -> None:
    """SIGKILL to the driver while its fleet grows, then a new one."""
    _killed_towards(scene, MAX)


@fault(GOES_ON, begins=MAX, moves_load=True)
def driver_killed_shrinking(scene: Scene) -> None:
    """SIGKILL to the driver while its fleet shrinks, then a new one."""
    _killed_towards(scene, MIN)


@fault("no executor is taken for lost; the target stays")
def long_collection(scene: Scene) -> None:
    """SIGSTOP to the driver's Java process for 15 s, as a long collection of garbage."""
    losses = scene.status()["losses"]
    with scene.stopped(scene.app.pids["java"]):
        passes_s(15.0)
    assert scene.holds(turns=2)[-1]["losses"] == losses


@fault("the job goes on; the next turn decides on what is true then", moves_load=True)
def python_stopped(scene: Scene) -> None:
    """SIGSTOP to the driver's Python process for 15 s, while the load changes."""
    with scene.stopped(scene.app.pids["python"]):
        scene.another_load()
        passes_s(15.0)


@fault("the new one is followed; the fleet stays")
def query_restarted(scene: Scene) -> None:
    """The query is stopped and started again."""
    first = scene.job()["batch"]
    scene.app.ask("restart_query")
    scene.wait(lambda: scene.job()["batch"] >= first + 2, "the new query stands still")
    scene.holds(turns=2)


@fault("it goes on from its journal, and the fleet stays")
def scaler_restarted(scene: Scene) -> None:
    """Penstock is stopped and attached again."""
    scene.app.ask("restart_scaler")
    scene.holds(turns=3)
