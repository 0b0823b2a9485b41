"""What holds after every fault; the docstrings are the list in the docs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from penstock.core.journal import read_steps
from penstock.core.knowledge import Knowledge
from penstock.core.model import Step
from tests.chaos.faults import Fault
from tests.chaos.policy import MAX, MIN, FollowLoad
from tests.chaos.scene import Scene
from tests.survival.scene import results, truth

#: A fleet settles within this after the last fault.
SETTLE_S = 120.0
#: An executor starts within this, on a machine that does other things too.
START_S = 60.0
#: Handles and threads that come and go.
FILES, THREADS = 8, 2

Invariant = Callable[[Scene, Fault], Iterator[str]]


def settles(scene: Scene, _: Fault) -> Iterator[str]:
    """Penstock runs, and the fleet settles within two minutes at the size that the load needs."""
    try:
        scene.settle(SETTLE_S)
    except TimeoutError as error:
        seen = scene.status()
        yield f"{error}: target {seen['target']}, active {seen['active']}, {seen['last']}"


def counts_once(scene: Scene, _: Fault) -> Iterator[str]:
    """Every record is counted exactly once."""
    usual_rps, scene.feed.rate_rps = scene.feed.rate_rps, 0.0

    def is_read() -> bool:
        waiting = scene.feed._producer.flush(10.0)
        return waiting == 0 and sum(scene.job()["offsets"].values()) == scene.feed.sent

    scene.wait(is_read, "records are left over")
    counted, right = results(scene.bed, scene.settings["output"]), truth(scene.feed.sent)
    scene.feed.rate_rps = usual_rps
    if wrong := [key for key, total in right.items() if counted.get(key) != total]:
        first = f"{counted.get(wrong[0])} instead of {right[wrong[0]]}"
        yield f"{len(wrong)} keys are counted wrong, such as {wrong[0]}: {first}"


def stays_within_bounds(scene: Scene, fault: Fault) -> Iterator[str]:
    """The target is never outside of the bounds and never 0; the fleet is never above the maximum
    (unless somebody else asks for more), and not below the minimum for longer than a start takes.
    """
    seen = [each for each in scene.statuses if each["active"] is not None]
    if wrong := {each["target"] for each in seen} - set(range(MIN, MAX + 1)):
        yield f"the target was {wrong}"
    if not fault.overshoots and (most := max((each["active"] for each in seen), default=0)) > MAX:
        yield f"the fleet was {most}"
    short_since_s: float | None = None
    for each in seen:
        if each["active"] >= MIN:
            short_since_s = None
        elif short_since_s is None:
            short_since_s = each["at_s"]
        elif each["at_s"] - short_since_s > START_S:
            yield f"the fleet was {each['active']} for over {START_S:.0f} s"
            return


def fails_no_task(scene: Scene, fault: Fault) -> Iterator[str]:
    """No task fails, except those of executors that were killed and of brokers that were away."""
    failed = scene.job()["failed_tasks"]
    more, scene.failed_tasks = failed - scene.failed_tasks, failed
    if more > 0 and not fault.kills and not fault.is_outage:
        yield f"{more} tasks failed"


def says_it_once(scene: Scene, _: Fault) -> Iterator[str]:
    """No warning comes twice, however long it lasts."""
    for text, count in Counter(scene.warnings()).items():
        if count > 1:
            yield f"said {count} times: {text}"


def leaves_nothing(scene: Scene, _: Fault) -> Iterator[str]:
    """No thread, file handle, listener or executor process is left."""

    def left() -> list[str]:
        status, job = scene.status(), scene.job()
        seen = {"threads": status["threads"], "files": status["files"]}
        base = scene.baseline = scene.baseline or {**seen, "listeners": job["listeners"]}
        alive = sorted(each.id for each in scene.bed.executors())
        found = []
        if seen["threads"] > base["threads"] + THREADS or seen["files"] > base["files"] + FILES:
            found.append(f"left: {seen} after {base}")
        if job["listeners"] != base["listeners"]:
            found.append(f"listeners: {job['listeners']} after {base['listeners']}")
        if alive != job["executors"]:
            found.append(f"processes of executors {alive}, Spark knows {job['executors']}")
        return found

    try:
        scene.wait(lambda: not left(), "something is left", START_S)
    except TimeoutError:
        yield from left()


def writes_journal(scene: Scene, _: Fault) -> Iterator[str]:
    """The journal can be read to its end, and each turn is written to it."""
    before = len(list(read_steps(scene.journal)))
    try:
        scene.wait(lambda: len(list(read_steps(scene.journal))) > before, "no step", START_S)
    except TimeoutError:
        yield "no step is written to the journal any more"


def decides_the_same(scene: Scene, fault: Fault) -> Iterator[str]:
    """Each decision, the first of a restarted driver included, follows from the journal alone."""
    if fault.spoils_journal:
        return
    steps = [step for step in read_steps(scene.journal) if step.at_s >= scene.began_at_s - 5.0]
    for before, step in pairwise(steps):
        wanted = _decided(before, step)
        if wanted not in (None, step.decision.wanted_executors):
            yield f"{step.decision.wanted_executors} were wanted at {step.at_s}, and not {wanted}"
            return


def _decided(before: Step, step: Step) -> int | None:
    """What the policy wants at a step, after the one before."""
    if step.snapshot is None:
        return None
    knowledge = Knowledge()
    knowledge.remember(before)
    return FollowLoad().decide(step.snapshot, knowledge).target_executors


INVARIANTS: tuple[Invariant, ...] = (
    settles, counts_once, stays_within_bounds, fails_no_task, says_it_once, leaves_nothing,
    writes_journal, decides_the_same,
)  # fmt: skip
