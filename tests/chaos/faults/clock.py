"""The wall clock of the driver's machine."""

from __future__ import annotations

from tests.chaos.faults.table import fault
from tests.chaos.scene import Scene

UNMOVED = "no turn is left out, no delay is made up, the target stays"


def _set(scene: Scene, ahead_s: float) -> None:
    with scene.broken("set_clock", ahead_s=ahead_s):
        scene.batches(2)
        seen = scene.holds(turns=8)
    seen += scene.holds(turns=8)
    longest_s = max((each["delay_s"] or 0.0 for each in seen), default=0.0)
    assert longest_s < 300.0, f"a delay of {longest_s:.0f} s"
    assert scene.warned("the clock of this machine was set") == 2, scene.warnings()


@fault(UNMOVED)
def clock_ahead(scene: Scene) -> None:
    """The driver's clock is set an hour ahead, and back later."""
    _set(scene, 3600.0)


@fault(UNMOVED)
def clock_back(scene: Scene) -> None:
    """The driver's clock is set an hour back, and ahead later."""
    _set(scene, -3600.0)
