"""Others who want to size the same fleet."""

from __future__ import annotations

from tests.chaos.faults.table import fault
from tests.chaos.policy import MAX, MIN
from tests.chaos.scene import Scene

REPAIRED = "the target is requested again"


def _others_request(scene: Scene, executors: int) -> None:
    before = scene.status()["repairs"]
    scene.app.ask("request", executors=executors)
    scene.wait(lambda: scene.status()["repairs"] > before, "nobody noticed")
    scene.wait(
        lambda: scene.job()["requested"] == scene.status()["target"],
        "the target was not requested again",
    )


@fault(f"{REPAIRED}; who came too much goes again", overshoots=True)
def target_raised(scene: Scene) -> None:
    """Somebody else asks for two more than the maximum: executors come twice."""
    _others_request(scene, MAX + 2)


@fault(REPAIRED)
def target_lowered(scene: Scene) -> None:
    """Somebody else asks for one executor."""
    _others_request(scene, 1)


@fault(REPAIRED)
def target_zero(scene: Scene) -> None:
    """Somebody else asks for no executor."""
    _others_request(scene, 0)


@fault("it is refused in one sentence; the first one goes on")
def second_attachment(scene: Scene) -> None:
    """A second attachment to the same application."""
    answer = scene.app.ask("attach_again")
    assert "already sizes the fleet" in answer, f"it was told {answer!r}"
    scene.holds(turns=2)


@fault("the fleet follows both", begins=MAX, moves_load=True, spoils_journal=True)
def bounds_changed(scene: Scene) -> None:
    """The maximum is lowered while the fleet is larger, and raised again."""
    scene.app.ask("update", most=MIN)
    try:
        scene.wait_status("the fleet stays larger than its maximum", target=MIN, active=MIN)
    finally:
        scene.app.ask("update", most=MAX)
