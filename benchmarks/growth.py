"""How the cost of Penstock grows: with executors, queries, the length of a journal, event logs.

``python -m benchmarks.growth`` writes growth.json, from which `make docs` makes docs/growth.md. All
times are those of one core, the least of several tries, so that other work on the machine hardly
counts. It takes about two minutes.
"""

from __future__ import annotations

import platform
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from benchmarks.advise_speed import written
from msgspec import Struct

from penstock.core.journal import encode_step, read_steps, read_tail, write_all
from penstock.core.knowledge import Knowledge
from penstock.core.model import Limits, QuerySample, Snapshot, Step
from penstock.core.protocols import Policy
from penstock.lab.advise.logs import LogFile
from penstock.lab.advise.pipeline import read_here
from penstock.observe.report.page import page
from penstock.policies.checks.made_up_job import START_AT_S, made_up_snapshot
from penstock.policies.ds2 import Ds2
from penstock.policies.penstock.penstock import Penstock

RESULTS = Path(__file__).parent / "growth.json"
EXECUTORS = (10, 100, 1_000, 10_000)
QUERIES = (1, 10, 100)
#: Turns of a journal: 1.4 hours, 14 hours and nearly six days with a turn every ten seconds.
TURNS = (500, 5_000, 50_000)
LOG_MB = (10, 50, 250)


class Curve(Struct, frozen=True):
    """What one thing costs at several sizes."""

    name: str
    unit: str
    along: str
    points: dict[int, float]


class Growth(Struct, frozen=True):
    """All curves, and where they were measured."""

    where: str
    curves: list[Curve]


def least_s(action: Callable[[], object], tries: int = 5) -> float:
    taken = []
    for _ in range(tries):
        begin = time.process_time()
        action()
        taken.append(time.process_time() - begin)
    return min(taken)


def played(policy: Policy, seen: Sequence[Snapshot], most: int) -> tuple[float, Step]:
    """The least time of a turn of the policy (learn, decide, remember), and its last step."""
    knowledge, taken = Knowledge(Limits(max_executors=most)), []
    for snapshot in seen:
        begin = time.process_time()
        knowledge.learn(snapshot, snapshot.at_s)
        step = Step(snapshot.at_s, snapshot, policy.decide(snapshot, knowledge))
        knowledge.remember(step)
        taken.append(time.process_time() - begin)
    return min(taken[len(taken) // 2 :]), step


def turns(executors: int, count: int, period_s: float = 10.0) -> list[Snapshot]:
    return [
        made_up_snapshot("micro_batch", turn, START_AT_S + turn * period_s, executors)
        for turn in range(count)
    ]


def with_executors() -> list[Curve]:
    decided: dict[str, dict[int, float]] = {"penstock": {}, "ds2": {}}
    encoded, length, memory = dict[int, float](), dict[int, float](), dict[int, float]()
    for size in EXECUTORS:
        seen = turns(size, 24 if size > 1_000 else 60)
        decided["ds2"][size] = 1e3 * played(Ds2(), seen, size)[0]
        took_s, step = played(Penstock(), seen, size)
        decided["penstock"][size] = 1e3 * took_s
        encoded[size] = 1e3 * least_s(partial(encode_step, step))
        length[size] = len(encode_step(step)) / 1e3
        tracemalloc.start()
        kept = turns(size, 8)
        memory[size] = tracemalloc.get_traced_memory()[0] / len(kept) / 1e3
        tracemalloc.stop()
    along = "executors"
    return [
        *(Curve(f"a turn of `{name}`", "ms", along, found) for name, found in decided.items()),
        Curve("writing a line of the journal", "ms", along, encoded),
        Curve("a line of the journal", "kB", along, length),
        Curve("memory of a remembered turn", "kB", along, memory),
    ]


def with_queries() -> list[Curve]:
    """Ten executors and ever more queries that share them."""
    decided, length = dict[int, float](), dict[int, float]()
    for count in QUERIES:
        seen = [
            msgspec.structs.replace(each, queries=shared(each, count)) for each in turns(10, 60)
        ]
        took_s, step = played(Penstock(), seen, 16)
        decided[count], length[count] = 1e3 * took_s, len(encode_step(step)) / 1e3
    return [
        Curve("a turn of `penstock`", "ms", "queries", decided),
        Curve("a line of the journal", "kB", "queries", length),
    ]


def shared(seen: Snapshot, count: int) -> tuple[QuerySample, ...]:
    """As many queries that do the work of the job in equal parts."""
    arrival_rps, throughput_rps = seen.arrival_rps or 0.0, seen.throughput_rps or 0.0
    return tuple(
        QuerySample(
            f"query-{number}",
            slo_s=10.0,
            arrival_rps=arrival_rps / count,
            throughput_rps=throughput_rps / count,
            delay_s=seen.delay_s,
            busy_slots=1.0 / count,
        )
        for number in range(count)
    )


def with_turns() -> list[Curve]:
    """A journal of ten executors: its size, what a restart, `explain` and `report` take."""
    size, restart, reading, report = (dict[int, float]() for _ in range(4))
    knowledge, policy, steps = Knowledge(), Penstock(), list[Step]()
    for snapshot in turns(10, 500):
        knowledge.learn(snapshot, snapshot.at_s)
        steps.append(Step(snapshot.at_s, snapshot, policy.decide(snapshot, knowledge)))
        knowledge.remember(steps[-1])
    for count in TURNS:
        span_s = 10.0 * len(steps)
        shifted = [
            moved(steps[turn % len(steps)], span_s * (turn // len(steps))) for turn in range(count)
        ]
        with TemporaryDirectory() as folder:
            path = Path(folder, "live.jsonl")
            write_all(path, shifted)
            size[count] = path.stat().st_size / 1e6
            tries = 1 if count == max(TURNS) else 3
            restart[count] = least_s(partial(recall, path), tries)
            reading[count] = least_s(partial(count_steps, path), tries)
            report[count] = least_s(partial(page, [("live", shifted)], title="", slo_s=10.0), tries)
    along = "turns"
    return [
        Curve("the journal", "MB", along, size),
        Curve("reading all of it, as `explain` does", "s", along, reading),
        Curve("drawing it, as `report` does", "s", along, report),
        Curve("a restart, which reads its end", "s", along, restart),
    ]


def recall(path: Path) -> Knowledge:
    return Knowledge.from_steps(read_tail(path))


def count_steps(path: Path) -> int:
    return sum(1 for _ in read_steps(path))


def moved(step: Step, by_s: float) -> Step:
    at_s = step.at_s + by_s
    snapshot = step.snapshot and msgspec.structs.replace(step.snapshot, at_s=at_s)
    return msgspec.structs.replace(step, at_s=at_s, snapshot=snapshot)


def with_logs() -> list[Curve]:
    """What a task of `advise` takes for one log; each log is a task of its own."""
    taken = dict[int, float]()
    with TemporaryDirectory() as folder:
        for megabytes in LOG_MB:
            place = Path(folder, f"log-{megabytes}")
            written(place, megabytes, "zstd")
            log = LogFile(str(place), f"file:{place}")
            taken[megabytes] = least_s(partial(read_here, 86_400.0, log), 2)
            place.unlink()
    return [Curve("reading an event log (zstd)", "s", "MB of event log", taken)]


def main() -> int:
    curves = [*with_executors(), *with_queries(), *with_turns(), *with_logs()]
    where = (
        f"one core, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
    )
    rounded = [
        msgspec.structs.replace(
            each, points={at: float(f"{y:.3g}") for at, y in each.points.items()}
        )
        for each in curves
    ]
    text = msgspec.json.encode(Growth(where, rounded))
    RESULTS.write_bytes(msgspec.json.format(text, indent=2) + b"\n")
    for each in rounded:
        print(f"{each.name} ({each.unit}) by {each.along}: {each.points}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
