"""Executors and the nodes that they run on."""

from __future__ import annotations

from tests.chaos.faults.table import fault
from tests.chaos.policy import MAX, MIN
from tests.chaos.scene import Scene
from tests.survival.scene import passes_s

COME_LATER = "the target stays; the executors come when they can"


def _losses(scene: Scene, count: int) -> None:
    before = scene.status()["losses"]
    scene.kill_executors([each.id for each in scene.executors()[-count:]])
    scene.wait(lambda: scene.status()["losses"] == before + count, "a loss was not noticed")


@fault("one loss is counted and logged; it is replaced")
def executor_killed(scene: Scene) -> None:
    """SIGKILL to the newest executor."""
    _losses(scene, 1)


@fault("two losses are counted; both are replaced")
def two_executors_killed(scene: Scene) -> None:
    """SIGKILL to two executors at once."""
    _losses(scene, 2)


@fault("the target stays; the batch waits for it")
def executor_stopped(scene: Scene) -> None:
    """SIGSTOP to an executor for 30 s."""
    with scene.stopped(scene.executors()[-1].pid):
        passes_s(30.0)
        scene.holds(turns=1)


@fault("the fleet comes to its smaller size; it is no loss", begins=MAX, moves_load=True)
def executor_lost_while_leaving(scene: Scene) -> None:
    """SIGKILL to an executor that is being decommissioned."""
    losses = scene.status()["losses"]

    def leaving() -> list[str]:
        alive = {each.id for each in scene.bed.executors()}
        return sorted(alive.intersection(scene.app.ask("leaving")))

    scene.load(MIN)
    scene.kill_executors(scene.wait(leaving, "nobody leaves", every_s=0.05)[:1])
    scene.settle(fully=False)
    assert scene.status()["losses"] == losses, "who left was taken for lost"


def _lose_node(scene: Scene) -> None:
    before, alive = scene.status()["losses"], scene.executors()
    node = alive[-1].node
    scene.kills += sum(each.node == node for each in alive)
    scene.bed.cluster.remove_node(node)
    scene.wait(lambda: scene.status()["losses"] > before, "the loss was not noticed")


@fault("the losses are counted; the fleet is complete once there is room again")
def node_lost(scene: Scene) -> None:
    """A node is killed with all its executors; a new one comes."""
    _lose_node(scene)
    scene.add_nodes()


@fault(
    "that the cluster has no more is logged once; the fleet is complete once there is room",
    begins=MAX,
    moves_load=True,
)
def executors_never_come(scene: Scene) -> None:
    """A node goes, so that an executor that is wanted never comes; later there is room."""
    _lose_node(scene)
    said = f"of {MAX} executors after"
    scene.wait(lambda: scene.warned(said), "it was not said", every_s=1.0)
    scene.turns(3)
    assert scene.warned(said) == 1
    scene.add_nodes()


@fault(COME_LATER, begins=MIN, moves_load=True)
def executors_slow(scene: Scene) -> None:
    """The workers are stopped for 10 s while the fleet grows."""
    with scene.stopped(*(each.pid for each in scene.bed.cluster.nodes.values())):
        scene.load(MAX)
        scene.wait_status("it did not grow", target=MAX)
        passes_s(10.0)
        scene.holds(turns=1)


@fault("the request waits for it; the executors come when they can", begins=MIN, moves_load=True)
def master_stopped(scene: Scene) -> None:
    """The master is stopped for 10 s while the fleet grows."""
    with scene.stopped(scene.bed.cluster.master.pid):
        scene.load(MAX)
        passes_s(10.0)
    scene.wait_status("it did not grow", target=MAX)


@fault("the target is requested again; the executor is replaced")
def executor_ended_by_others(scene: Scene) -> None:
    """Somebody else ends an idle executor, which lowers Spark's target."""

    def changes() -> int:
        status = scene.status()
        return int(status["repairs"] + status["losses"])

    before = changes()
    scene.wait(lambda: scene.app.ask("end_idle"), "no executor is ever idle", every_s=0.05)
    scene.kills += 1
    scene.wait(lambda: changes() > before, "nobody noticed")
