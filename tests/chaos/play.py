"""One fault after the other: which is due, how it is played, and what is said of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from tests.chaos.faults import FAULTS, Fault
from tests.chaos.invariants import INVARIANTS, Invariant, counts_once, settles
from tests.chaos.scene import Scene
from tests.survival.scene import now_s


def chosen(parts: str, is_isolated: bool) -> list[str]:
    """The kinds of these parts: groups or single kinds, all if there are none."""
    wanted = set(filter(None, parts.split(",")))
    known = {each.group for each in FAULTS.values()} | set(FAULTS)
    if unknown := sorted(wanted - known):
        raise ValueError(f"there is no part {unknown[0]!r}: {', '.join(sorted(known))}")
    found = [
        name
        for name, each in FAULTS.items()
        if (not wanted or {name, each.group} & wanted) and (is_isolated or not each.needs_root)
    ]
    if not found:
        raise ValueError("these faults need the right to make namespaces")
    return found


def next_fault(names: Sequence[str], seed: int, done: Iterable[str], rounds: int) -> str | None:
    """The kind that is due: in each round all kinds once, in an order that the seed gives.

    >>> next_fault(["a", "b", "c"], 1, [], 1), next_fault(["a", "b", "c"], 1, ["b", "a"], 1)
    ('b', 'c')
    >>> next_fault(["a", "b"], 1, ["b", "a"], rounds=1)
    """
    counts = Counter(done)
    turn = min(counts[name] for name in names)
    due = [name for name in names if counts[name] == turn]
    if turn >= rounds:
        return None
    return min(due, key=lambda name: Random(f"{seed} {turn} {name}").random())


def rescales_in(counts: Iterable[int]) -> int:
    """How many rescales there were; a scaler that is started again counts from zero.

    >>> rescales_in([4, 4, 5, 0, 1])
    2
    """
    return sum(after - before if after >= before else after for before, after in pairwise(counts))


def play(scene: Scene, fault: Fault, seed: int) -> dict[str, Any]:
    """One fault, and all that must hold after it."""
    sent, broke, stage = scene.feed.sent, [], "before it"
    begun_s = ready_s = now_s()
    try:
        scene.begin()
        _prepare(scene, fault)
        stage, ready_s = "expected", now_s()
        fault.run(scene)
    except Exception as error:
        broke.append(f"{stage}: {_words(error)}")
    healed_s = now_s()
    unsettled = _broken(settles, scene, fault)
    broke += unsettled
    settled_s = now_s()
    # What is left and written of a fleet that does not settle says nothing.
    for check in (counts_once,) if unsettled else INVARIANTS[1:]:
        broke += _broken(check, scene, fault)
    return {
        "fault": fault.name,
        "seed": seed,
        "seconds": round(now_s() - begun_s),
        "fault_s": round(healed_s - ready_s, 1),
        "settled_s": round(settled_s - healed_s, 1),
        "records": scene.feed.sent - sent,
        "rescales": rescales_in(each["rescales"] for each in scene.statuses),
        "kills": scene.kills,
        "outages": int(fault.is_outage),
        "broke": broke,
    }


def _prepare(scene: Scene, fault: Fault) -> None:
    if fault.begins is not None:
        scene.load(fault.begins)
    elif not fault.moves_load:
        scene.another_load()
    scene.settle(fully=False)
    scene.turns(4)  # the actuator looks every other turn: it cannot miss what it has not seen
    scene.baseline = scene.baseline or scene.footprint()


def _broken(check: Invariant, scene: Scene, fault: Fault) -> list[str]:
    try:
        return [f"{check.__name__}: {text}" for text in check(scene, fault)]
    except Exception as error:
        return [f"{check.__name__}: {_words(error)}"]


def _words(error: Exception) -> str:
    is_plain = isinstance(error, AssertionError | TimeoutError)
    return str(error) if is_plain and str(error) else f"{type(error).__name__}: {error}"


def line_of(result: dict[str, Any]) -> str:
    """A result in a line, and what broke below it."""
    outcome = "BROKE" if result["broke"] else "held"
    parts = [
        f"{outcome:6}{result['fault']:28}{result['seconds']:4} s",
        f"fault {result['fault_s']:.0f} s",
        f"settled after {result['settled_s']:.0f} s",
        f"{result['rescales']} rescales",
        f"{result['kills']} kills",
        f"{result['records']} records",
    ]
    return "\n".join([", ".join(parts), *(f"      {text}" for text in result["broke"])])
