"""What holds after every fault; the docstrings are the list in the docs."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from penstock.core.journal import read_steps
from penstock.core.knowledge import Knowledge
from penstock.core.model import Step
from tests.chaos.faults import Fault
from tests.chaos.policy import MAX, MIN, FollowLoad
from tests.chaos.scene import Scene
from tests.survival.scene import truth

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
        yield str(error)


def counts_once(scene: Scene, _: Fault) -> Iterator[str]:
    """Every record is counted exactly once."""
    feed = scene.feed
    usual_rps, feed.rate_rps, ends = feed.rate_rps, 0.0, [0]
    assert feed.runs, "the feed has ended"

    def is_read() -> bool:
        waiting = feed.flush(10.0)
        ends.append(sum(scene.job()["offsets"].values()))
        return waiting == 0 and ends[-1] == feed.sent

    try:
        scene.wait(is_read, "records are left over", START_S)
    except TimeoutError as error:
        yield f"{error}: {ends[-1]} of {feed.sent} are read"
    counted, right = scene.results.read(), truth(feed.sent)
    feed.rate_rps = usual_rps
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
    if more > 0 and not scene.kills and not fault.is_outage:
        yield f"{more} tasks failed"


def repeated(log: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Warnings that came again although nothing was said to work again in between.

    >>> list(repeated([("WARNING", "blind"), ("INFO", "seen again"), ("WARNING", "blind")]))
    []
    >>> list(repeated([("WARNING", "blind"), ("INFO", "2 executors"), ("WARNING", "blind")]))
    ['blind']
    """
    said: set[str] = set()
    for level, text in log:
        if level == "INFO" and " again" in text:
            said.clear()
        elif level != "INFO":
            if text in said:
                yield text
            said.add(text)


def says_it_once(scene: Scene, _: Fault) -> Iterator[str]:
    """No warning comes twice, however long it lasts, unless what it is about worked again."""
    for text, count in Counter(repeated(scene.log())).items():
        yield f"said {count + 1} times: {text}"


def leaves_nothing(scene: Scene, _: Fault) -> Iterator[str]:
    """No thread, file handle, listener or executor process is left."""

    def left() -> list[str]:
        seen = scene.footprint()
        base = scene.baseline = scene.baseline or seen
        alive, known = {each.id for each in scene.bed.executors()}, set(scene.job()["executors"])
        found = []
        if seen["threads"] > base["threads"] + THREADS or seen["files"] > base["files"] + FILES:
            found.append(f"left: {seen} after {base}")
        if seen["listeners"] != base["listeners"]:
            found.append(f"listeners: {seen['listeners']} after {base['listeners']}")
        if alive != known:
            found.append(f"processes of executors {sorted(alive)}, Spark knows {sorted(known)}")
        return found

    try:
        scene.wait(lambda: not left(), "something is left", START_S)
    except TimeoutError:
        yield from left()


def writes_journal(scene: Scene, _: Fault) -> Iterator[str]:
    """The journal can be read to its end, and each turn is written to it."""
    before = scene.journal.stat().st_size
    try:
        scene.wait(lambda: scene.journal.stat().st_size > before, "no step is written", START_S)
    except TimeoutError as error:
        yield str(error)
    deque(read_steps(scene.journal), maxlen=0)


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


#: The first waits for the fleet; after the last the next load may begin.
INVARIANTS: tuple[Invariant, ...] = (
    settles, stays_within_bounds, fails_no_task, says_it_once, leaves_nothing, writes_journal,
    decides_the_same, counts_once,
)  # fmt: skip
