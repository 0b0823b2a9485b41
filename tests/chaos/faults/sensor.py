"""What Penstock sees the job by: status store, scheduler, listener."""

from __future__ import annotations

from tests.chaos.faults.broker import HELD
from tests.chaos.faults.table import fault
from tests.chaos.policy import MAX, MIN
from tests.chaos.scene import Scene

UNHARMED = "turns go on, held or not; no such number is in the journal"


@fault(HELD, moves_load=True)
def store_slow(scene: Scene) -> None:
    """The status store does not answer."""
    scene.holds_while(scene.broken("break_part", part="store", how="hangs"), "not_measured")
    assert scene.warned("the status store takes over") == 1


@fault(HELD, moves_load=True)
def store_fails(scene: Scene) -> None:
    """The status store raises errors."""
    scene.holds_while(scene.broken("break_part", part="store", how="fails"), "not_measured")
    assert scene.warned("the status store cannot be read") == 1


@fault(HELD, moves_load=True)
def scheduler_fails(scene: Scene) -> None:
    """The scheduler raises errors: not even the fleet is known."""
    scene.holds_while(scene.broken("break_part", part="backend", how="fails"), "sensor_blind")
    assert scene.warned("the fleet cannot be read") == 1


def _lies(scene: Scene, how: str) -> None:
    """The fleet is to shrink meanwhile: who leaves is chosen by what the store says."""
    with scene.broken("lying_store", how=how):
        scene.load(MIN)
        scene.turns(10)


@fault(UNHARMED, begins=MAX, moves_load=True)
def store_says_nan(scene: Scene) -> None:
    """The status store answers NaN for each number, while the fleet shrinks."""
    _lies(scene, "nan")


@fault(UNHARMED, begins=MAX, moves_load=True)
def store_says_negative(scene: Scene) -> None:
    """The status store answers negative numbers, while the fleet shrinks."""
    _lies(scene, "negative")


@fault("turns go on, held or not, and the cause is logged once", begins=MAX, moves_load=True)
def store_of_another_version(scene: Scene) -> None:
    """Half of the fields of the status store are missing, as in another version of Spark."""
    _lies(scene, "other version")


@fault("the queries are asked instead: no turn is blind, and the load is followed", moves_load=True)
def listener_blocked(scene: Scene) -> None:
    """A listener of the user hangs, and with it all reports."""
    with scene.broken("block_listener"):
        scene.batches(3)
        scene.another_load()
        codes = {each["code"] for each in scene.turns(10)}
        assert not codes & {"sensor_blind", "not_measured"}, f"reasons were {sorted(codes)}"
