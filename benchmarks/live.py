"""Speed of the live scaler on real parts, as ratios of one run: ``make bench-live``.

A broker, a cluster and an application on this machine; about twelve minutes on two quiet cores.
Both sides of a ratio are measured in the same run, so a slow machine shifts both; a machine that
does other things meanwhile shifts them at random. The lines go into results.json beside those of
run.py, by name. ``--only overhead`` (or another of `BENCHMARKS`) measures one of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.run import Measured, at_least, at_most, keep, show
from tests.drivers import end_driver
from tests.survival.scene import (
    PATIENCE_S,
    Dial,
    Feed,
    come_to,
    commit,
    counting,
    last_batch,
    new_topic,
    now_s,
    processed,
    read_stream,
    session,
)

import penstock
from penstock.core.clock import WallClock
from penstock.spark.attach import Attachment
from penstock.spark.internals import Driver
from penstock.spark.sensor.progress import parse_progress
from penstock.spark.sensor.sensor import SparkSensor
from penstock.testbed import Testbed, wait_until
from penstock.testbed.jobs.playback import Report, follow, play
from penstock.testbed.jobs.producer import KafkaSender
from penstock.testbed.jobs.spark_sender import TICK_S as SPARK_TICK_S
from penstock.testbed.jobs.spark_sender import EventPlan, SparkSender, connector_settings, open_plan
from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.sessions import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SLOTS = 16
MORE = {"spark.cores.max": str(SLOTS)}


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


# -- What Penstock costs a query that has no time to spare ---------------------------------------

#: Records of a batch, each hashed so often that two executors take about a second for it.
BATCH_RECORDS = 4000
HASHES = 100
BATCHES_PER_ROUND = 20
ROUNDS = 8


def overhead(bed: Testbed, _: Path) -> list[Measured]:
    """Throughput with Penstock and without, in turns, in the order without with with without.

    The query is bound by the processor, so its throughput is counted in records per second of
    processor time, all processes of the testbed and this one together: whoever else uses the
    machine meanwhile then shifts it by percents, where the clock's seconds shift by tens of them.
    """
    topic = new_topic(bed)
    batches = 15 + ROUNDS * 2 * (BATCHES_PER_ROUND + 4)
    with Feed(bed, topic, rate_rps=0.0) as feed:
        feed.write(2 * batches * BATCH_RECORDS)
    with session(bed, executors=2, **MORE) as spark, saturated(bed, spark, topic) as query:
        commit(query, 15)
        done: dict[bool, list[Pace]] = {False: [], True: []}
        for number in range(ROUNDS):
            for attached in (False, True) if number % 2 == 0 else (True, False):
                done[attached].append(pace(spark, query, attached))
            alone, ours = done[False][-1], done[True][-1]
            say(
                f"round {number + 1}: {alone.per_cpu_s:.0f} records per processor-second "
                f"({alone.rps:.0f}/s), {ours.per_cpu_s:.0f} ({ours.rps:.0f}/s) with us"
            )
    by_clock = mean(each.rps for each in done[True]) / mean(each.rps for each in done[False])
    ratio = median(each.per_cpu_s for each in done[True]) / median(
        each.per_cpu_s for each in done[False]
    )
    say(f"with us / without: {ratio:.3f} per processor-second, {by_clock:.3f} by the clock")
    return [at_least("live: throughput of a saturated query with Penstock / without", ratio, 0.99)]


class Pace(NamedTuple):
    """Records per second of the clock, and per second of processor time."""

    rps: float
    per_cpu_s: float


@contextmanager
def saturated(bed: Testbed, spark: SparkSession, topic: str) -> Iterator[StreamingQuery]:
    """A query that starts a batch as soon as one is done, bound by the processor."""
    limit = {"maxOffsetsPerTrigger": str(BATCH_RECORDS)}
    chain = f"aggregate(sequence(1, {HASHES}), CAST(value AS STRING), (past, _) -> sha2(past, 256))"
    hashes = read_stream(bed, spark, topic, **limit).selectExpr(f"{chain} AS hash")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = hashes.where("hash < '000'").writeStream.format("noop")
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            yield query
        finally:
            query.stop()


def pace(spark: SparkSession, query: StreamingQuery, attached: bool) -> Pace:
    """Over some batches, without the one during which it was begun and the next."""
    if not attached:
        return _pace(query)
    with penstock.attach(spark, min=2, max=2):
        return _pace(query)


def _pace(query: StreamingQuery) -> Pace:
    commit(query, 2)
    first, begun_cpu_s = last_batch(query), processor_s()
    commit(query, BATCHES_PER_ROUND)
    last, used_s = last_batch(query), processor_s() - begun_cpu_s
    times = [at_s for batch, at_s in commits(query) if first <= batch <= last]
    records = BATCH_RECORDS * (last - first)
    return Pace(records / (times[-1] - times[0]), records / used_s)


def processor_s(root: int | None = None) -> float:
    """The processor time of a process, by default this one, and all that descend from it."""
    first = os.getpid() if root is None else root
    used: dict[int, float] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it has ended
        fields = text.rpartition(")")[2].split()
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_ours(pid: int) -> bool:
        return pid == first or (pid in parents and is_ours(parents[pid]))

    return sum(seconds for pid, seconds in used.items() if is_ours(pid))


def commits(query: StreamingQuery) -> list[tuple[int, float]]:
    """Each batch and when it was committed, oldest first."""
    reports: list[Any] = list(query.recentProgress)
    batches = [parse_progress(report.json).batch for report in reports]
    return [
        (batch.id, batch.started_at_s + batch.duration_s) for batch in batches if batch is not None
    ]


# -- What a rescale interrupts, live and by starting the application again -----------------------

STATE_KEYS = 200_000
STATE_RPS = 200.0
SMALL, LARGE = 2, 4
RUNS = 3
#: Batches after which a rescale is over, and before it that tell what is usual.
AFTERWARDS = 8
USUAL = 10


def interruption(bed: Testbed, directory: Path) -> list[Measured]:
    """The longest gap between two commits beyond the usual, up and down, three times each."""
    topic, output = new_topic(bed), new_topic(bed)
    live: dict[int, list[float]] = {SMALL: [], LARGE: []}
    restarted: dict[int, list[float]] = {SMALL: [], LARGE: []}

    @contextmanager
    def job(executors: int, cost_s: float = 0.002) -> Iterator[tuple[SparkSession, StreamingQuery]]:
        state = directory / "state"
        with (
            session(bed, executors=executors, **MORE) as spark,
            counting(bed, spark, topic, output, state, cost_s=cost_s, keys=STATE_KEYS) as query,
        ):
            yield spark, query

    with Feed(bed, topic, rate_rps=0.0) as feed:
        feed.write(STATE_KEYS)
        with job(SMALL, cost_s=0.0) as (_, query):
            wait_until(lambda: processed(query) == STATE_KEYS, PATIENCE_S, "there is no state")
        feed.rate_rps = STATE_RPS
        with job(SMALL) as (spark, query):
            warm_up(query)
            dial = Dial(SMALL)
            with penstock.attach(spark, dial, min=SMALL, max=LARGE) as handle:
                for executors in (LARGE, SMALL) * RUNS:
                    before = commits(query)
                    dial.executors = executors
                    come_to(spark, executors)
                    commit(query, AFTERWARDS)
                    wait_until(lambda: handle.status().is_settled, PATIENCE_S, "it moves for ever")
                    live[executors].append(gap_s(before, commits(query)))
                    say(f"live to {executors}: {live[executors][-1]:.2f} s")
                    warm_up(query)
            before = commits(query)
        for executors in (LARGE, SMALL) * RUNS:
            # The last application has ended with its block; the next starts at once.
            with job(executors) as (_, query):
                commit(query, AFTERWARDS)
                restarted[executors].append(gap_s(before, commits(query)))
                say(f"restart at {executors}: {restarted[executors][-1]:.2f} s")
                warm_up(query)
                before = commits(query)
    return [
        at_most(
            f"live: interruption by a rescale {way} / by a restart at the new size",
            max(0.0, median(live[executors])) / median(restarted[executors]),
            goal,
        )
        for way, executors, goal in (("up", LARGE, 0.3), ("down", SMALL, 0.1))
    ]


def warm_up(query: StreamingQuery) -> None:
    """Until as many batches ran at the usual pace as tell what is usual."""
    commit(query, USUAL + 1)


def gap_s(before: Sequence[tuple[int, float]], after: Sequence[tuple[int, float]]) -> float:
    """The longest gap after `before` beyond the median of the gaps up to there.

    >>> gap_s([(1, 1.0), (2, 2.0), (3, 3.0)], [(2, 2.0), (3, 3.0), (4, 6.5), (5, 7.0)])
    2.5
    """
    usual = [late - early for (_, early), (_, late) in pairwise(before[-USUAL:])]
    times = [before[-1][1], *(at_s for batch, at_s in after if batch > before[-1][0])]
    return max(late - early for early, late in pairwise(times)) - median(usual)


# -- From a load step to the first task on a new executor ----------------------------------------

COST_S = 0.004
CALM_RPS, STEP_RPS = 150.0, 1250.0
CALM_TURNS = 6
STEPS = 2


def reaction(bed: Testbed, directory: Path) -> list[Measured]:
    """With the default policy as it is, against asking the cluster for as many executors."""
    topic, output = new_topic(bed), new_topic(bed)
    journal = directory / "reaction.jsonl"
    reacted, bare = [], []
    with (
        session(bed, executors=2, **MORE) as spark,
        Feed(bed, topic, rate_rps=CALM_RPS) as feed,
        counting(bed, spark, topic, output, directory / "reaction", cost_s=COST_S) as query,
    ):
        commit(query, 10)
        for _ in range(STEPS):
            with penstock.attach(spark, min=2, max=8, journal=journal) as handle:
                seconds, more = reaction_s(spark, feed, handle)
                reacted.append(seconds)
                say(f"first task on a new executor after {seconds:.1f} s: {handle.explain(1)[0]}")
            feed.rate_rps = CALM_RPS
            calm_down(spark, query)
            bare.append(bare_start_s(spark, more))
            say(f"bare start of {more}: {bare[-1]:.1f} s")
            calm_down(spark, query)
    name = "live: load step to first task on a new executor / bare start of as many executors"
    return [at_most(name, median(reacted) / median(bare), 1.5)]


def reaction_s(spark: SparkSession, feed: Feed, handle: Attachment) -> tuple[float, int]:
    """How long it took after a while of calm, and how many executors were asked for."""
    decided = lambda: handle.status().decisions >= CALM_TURNS  # noqa: E731
    wait_until(decided, PATIENCE_S, "nothing was decided")
    registered = Driver(spark).executor_ids
    wait_until(lambda: len(registered()) == handle.status().target == 2, PATIENCE_S, "no calm")
    known = set(registered())
    stepped_at_s = now_s()
    feed.rate_rps = STEP_RPS
    wait_until(lambda: worked(spark, known), PATIENCE_S, "nobody new works", every_s=0.02)
    return now_s() - stepped_at_s, (handle.status().target or 3) - 2


def worked(spark: SparkSession, known: set[str]) -> bool:
    """Whether an executor that was not known has begun a task."""
    return any(
        each["totalTasks"] > 0 for each in Driver(spark).executors() if each["id"] not in known
    )


def bare_start_s(spark: SparkSession, more: int) -> float:
    """From asking Spark itself until the first of them is registered."""
    driver = Driver(spark)
    known = set(driver.executor_ids())
    asked_at_s = now_s()
    driver.request_total_executors(len(known) + more)
    wait_until(lambda: set(driver.executor_ids()) - known, PATIENCE_S, "none came", every_s=0.02)
    return now_s() - asked_at_s


def calm_down(spark: SparkSession, query: StreamingQuery) -> None:
    """Back to two executors, the backlog worked off."""
    with penstock.attach(spark, Dial(2), min=2, max=8) as handle:
        wait_until(lambda: len(Driver(spark).executor_ids()) == 2, PATIENCE_S, "some stay")
        drained = lambda: (handle.status().backlog_records or 1e9) < 2 * CALM_RPS  # noqa: E731
        wait_until(drained, PATIENCE_S, "the backlog stays")
        commit(query, 3)


# -- What sensing takes of a trigger -------------------------------------------------------------

READINGS = 30


def sensing(bed: Testbed, directory: Path) -> list[Measured]:
    """Readings of all there is to see, at 16 executors and a trigger of one second.

    What a reading costs is the processor time that it takes in the driver's Python. It lasts longer
    where 16 executors share a few cores with the Java process that answers, but waiting is free.
    """
    topic, output = new_topic(bed), new_topic(bed)
    took_s: list[float] = []
    cost_s: list[float] = []
    with (
        session(bed, executors=2, **MORE) as spark,
        Feed(bed, topic, rate_rps=CALM_RPS),
        counting(bed, spark, topic, output, directory / "sensing", cost_s=COST_S) as query,
    ):
        commit(query, 5)
        Driver(spark).request_total_executors(SLOTS)
        come_to(spark, SLOTS)
        commit(query, 10)
        sensor = SparkSensor(spark)

        def read() -> bool:
            begun_s, begun_cpu_s = now_s(), time.process_time()
            snapshot = sensor.read(begun_s)
            took_s.append(now_s() - begun_s)
            cost_s.append(time.process_time() - begun_cpu_s)
            assert snapshot.fleet.active == SLOTS
            return len(took_s) > READINGS

        try:
            wait_until(read, PATIENCE_S, "too few readings", every_s=1.0)
        finally:
            sensor.close()
    taken, cost = took_s[1:], median(cost_s[1:])  # the first one connects
    say(
        f"sensing: median {1e3 * cost:.1f} ms of a processor; "
        f"it lasts {1e3 * median(taken):.1f} ms, at most {1e3 * max(taken):.1f} ms"
    )
    name = f"live: processor time of sensing, percent of a trigger of 1 s at {SLOTS} executors"
    return [at_most(name, 100.0 * cost, 1.0)]


# -- Events that one process sends, and that a Spark application sends ---------------------------

GENERATED = 800_000
GENERATION_ROUNDS = 3


def generation(bed: Testbed, _: Path) -> list[Measured]:
    """Nexmark events that are all due at once, sent by one process and by Spark, in turns.

    Events per second of processor time, which is that of whoever makes and sends them: the broker's
    does not count. Spark has two cores, its driver included.
    """
    topic, sent = new_topic(bed), {"local": list[Pace](), "spark": list[Pace]()}
    plan = EventPlan("nexmark", 1, (float(GENERATED),), 1_700_000_000_000)
    timeline = Timeline(plan.rates_rps)
    end_driver()  # another session's Java would not have the connector
    with open_session("generation", "local[2]", connector_settings()) as spark:
        on_spark = SparkSender(spark, bed.bootstrap_servers, topic)
        on_spark.warm_up(plan)

        def send_on_spark() -> Report:
            send = partial(on_spark.send, plan)
            return follow(timeline, send, WallClock(), SPARK_TICK_S, now_s() - 1.0)

        def send_here() -> Report:
            sender = KafkaSender(bed.bootstrap_servers, topic)
            return play(timeline, open_plan(plan), sender, WallClock(), start_s=now_s() - 1.0)

        send_on_spark()  # Java compiles what it runs often
        for _round in range(GENERATION_ROUNDS):
            sent["local"].append(sending_pace(bed, send_here))
            sent["spark"].append(sending_pace(bed, send_on_spark))
    end_driver()
    for place, paces in sent.items():
        per_cpu_s = median(each.per_cpu_s for each in paces)
        rps = median(each.rps for each in paces)
        say(f"{place}: {per_cpu_s:.0f} events per processor-second, {rps:.0f}/s by the clock")
    ratio = median(each.per_cpu_s for each in sent["spark"]) / median(
        each.per_cpu_s for each in sent["local"]
    )
    name = "live: events per processor-second made and sent by Spark / by the local producer"
    return [at_least(name, ratio, 0.4)]


def sending_pace(bed: Testbed, send: Callable[[], Report]) -> Pace:
    """Of one run that sends all events."""
    servers = (bed.broker.process.pid, bed.cluster.master.pid, bed.cluster.worker.pid)

    def used_s() -> float:
        return processor_s() - sum(map(processor_s, servers))

    begun_s, begun_cpu_s = now_s(), used_s()
    report = send()
    took_s, cost_s = now_s() - begun_s, used_s() - begun_cpu_s
    assert report.shortfall_records == 0, report.sentence()
    return Pace(GENERATED / took_s, GENERATED / cost_s)


BENCHMARKS: dict[str, Callable[[Testbed, Path], list[Measured]]] = {
    "overhead": overhead,
    "interruption": interruption,
    "reaction": reaction,
    "sensing": sensing,
    "generation": generation,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-live", description="Measures live speed.")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="may be repeated")
    chosen = parser.parse_args().only or list(BENCHMARKS)
    measured: list[Measured] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        try:
            with Testbed(slots=SLOTS, run_directory=Path(directory, "bed")) as bed:
                for name in chosen:
                    say(f"{name} ...")
                    measured += BENCHMARKS[name](bed, Path(directory))
        finally:
            end_driver()
    keep(measured)
    return show(measured)


if __name__ == "__main__":
    sys.exit(main())
