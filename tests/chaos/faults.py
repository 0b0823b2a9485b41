"""The table of faults: what is done to the running job, and what is expected of it meanwhile.

Each fault begins with a settled fleet. It breaks something, waits for what it expects, and repairs
it again. What holds after every fault is in `invariants`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.chaos.policy import MAX, MIN
from tests.chaos.scene import Scene
from tests.survival.scene import broker_away, passes_s


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    group: str
    how: str
    expected: str
    run: Callable[[Scene], None]
    #: Executors or drivers that are killed: their tasks fail, and are repeated.
    kills: int = 0
    #: Something that the job needs is away for a while.
    is_outage: bool = False
    #: Steps are missing in the journal afterwards, by intent.
    spoils_journal: bool = False
    #: Penstock is started again: what it counts begins at zero.
    restarts: bool = False
    #: Somebody else asks for more executors than the maximum.
    overshoots: bool = False
    needs_root: bool = False  #: It mounts, freezes or cuts something.
    moves_load: bool = False  #: It rescales by itself; before others, the load changes.


FAULTS: dict[str, Fault] = {}


def fault(
    group: str, how: str, expected: str, *, kills: int = 0, is_outage: bool = False,
    spoils_journal: bool = False, restarts: bool = False, overshoots: bool = False,
    needs_root: bool = False, moves_load: bool = False,
) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:  # fmt: skip
    """Put a function into the table under its name."""

    def add(run: Callable[[Scene], None]) -> Callable[[Scene], None]:
        name = run.__name__
        facts = (kills, is_outage, spoils_journal, restarts, overshoots, needs_root, moves_load)
        FAULTS[name] = Fault(name, group, how, expected, run, *facts)
        return run

    return add


# -- Executors and nodes --------------------------------------------------------------------------


def _losses(scene: Scene, count: int) -> None:
    before = scene.status()["losses"]
    for each in scene.bed.executors()[-count:]:
        scene.bed.kill_executor(each.id)
    scene.wait(lambda: scene.status()["losses"] == before + count, "a loss was not noticed")


@fault(
    "executor",
    "SIGKILL to the newest executor",
    "one loss is counted and logged; it is replaced",
    kills=1,
)
def executor_killed(scene: Scene) -> None:
    _losses(scene, 1)


@fault(
    "executor",
    "SIGKILL to two executors at once",
    "two losses are counted; both are replaced",
    kills=2,
)
def two_executors_killed(scene: Scene) -> None:
    _losses(scene, 2)


@fault("executor", "SIGSTOP to an executor for 30 s", "the target stays; the batch waits for it")
def executor_stopped(scene: Scene) -> None:
    with scene.stopped(scene.bed.executors()[-1].pid):
        target = scene.status()["target"]
        passes_s(30.0)
        assert {each["target"] for each in scene.turns(1)} == {target}


@fault(
    "executor",
    "SIGKILL to an executor that is being decommissioned",
    "the fleet comes to its smaller size; no further executor goes",
    kills=1,
    moves_load=True,
)
def executor_lost_while_leaving(scene: Scene) -> None:
    scene.load(MAX)
    scene.settle(240.0)
    scene.load(MIN)
    leaving = scene.wait(lambda: scene.job()["leaving"], "nobody leaves")
    alive = {each.id for each in scene.bed.executors()}
    for each in alive.intersection(leaving[:1]):
        scene.bed.kill_executor(each)


@fault(
    "executor",
    "a node is killed with all its executors; a new one comes",
    "the losses are counted; the fleet is complete once there is room again",
    kills=1,
)
def node_lost(scene: Scene) -> None:
    node = scene.bed.executors()[-1].node
    before = scene.status()["losses"]
    scene.bed.cluster.remove_node(node)
    scene.wait(lambda: scene.status()["losses"] > before, "the loss was not noticed")
    scene.bed.cluster.add_node()


@fault(
    "executor",
    "the workers are stopped for 10 s while the fleet grows",
    "the target stays; the executors come when they can",
    moves_load=True,
)
def executors_slow(scene: Scene) -> None:
    scene.load(MIN)
    scene.settle(240.0)
    with scene.stopped(*(each.pid for each in scene.bed.cluster.nodes.values())):
        scene.load(MAX)
        scene.wait_status("it did not grow", target=MAX)
        passes_s(10.0)
        assert scene.status()["target"] == MAX


@fault(
    "executor",
    "the master is stopped for 10 s while the fleet grows",
    "the target stays; the executors come when they can",
    moves_load=True,
)
def master_stopped(scene: Scene) -> None:
    scene.load(MIN)
    scene.settle(240.0)
    with scene.stopped(scene.bed.cluster.master.pid):
        scene.load(MAX)
        scene.wait_status("it did not grow", target=MAX)
        passes_s(10.0)


@fault(
    "executor",
    "a node goes, so that the executors that are wanted never come; later there is room",
    "that the cluster has no more is logged once; the fleet is complete once there is room",
    kills=1,
    moves_load=True,
)
def executors_never_come(scene: Scene) -> None:
    scene.load(MAX)
    scene.settle(240.0)
    scene.bed.cluster.remove_node(scene.bed.executors()[-1].node)
    try:
        scene.wait(lambda: scene.warned("the fleet is 3 of 4 executors"), "it was not said")
        scene.turns(3)
    finally:
        scene.bed.cluster.add_node()


@fault(
    "executor",
    "somebody else ends an idle executor, which lowers Spark's target",
    "the target is requested again; the executor is replaced",
    kills=1,
)
def executor_ended_by_others(scene: Scene) -> None:
    def changes() -> int:
        status = scene.status()
        return int(status["repairs"] + status["losses"])

    before = changes()
    scene.wait(lambda: scene.app.ask("end_idle"), "no executor is ever idle")
    scene.wait(lambda: changes() > before, "nobody noticed")


# -- The target -----------------------------------------------------------------------------------


def _others_request(scene: Scene, executors: int) -> None:
    before = scene.status()["repairs"]
    scene.app.ask("request", executors=executors)
    scene.wait(lambda: scene.status()["repairs"] > before, "nobody noticed")
    assert scene.job()["requested"] == scene.status()["target"]


@fault(
    "target",
    "somebody else asks for two more than the maximum: executors come twice",
    "the target is requested again; who came too much goes again",
    overshoots=True,
)
def target_raised(scene: Scene) -> None:
    _others_request(scene, MAX + 2)


@fault("target", "somebody else asks for one executor", "the target is requested again")
def target_lowered(scene: Scene) -> None:
    _others_request(scene, 1)


@fault("target", "somebody else asks for no executor", "the target is requested again")
def target_zero(scene: Scene) -> None:
    _others_request(scene, 0)


@fault(
    "target",
    "a second attachment to the same application",
    "it is refused in one sentence; the first one goes on",
)
def second_attachment(scene: Scene) -> None:
    told = scene.app.ask("attach_again")
    assert "already" in told or "another" in told, told
    scene.turns(2)


@fault(
    "target",
    "the maximum is lowered while the fleet is larger, and raised again",
    "the fleet follows both",
    spoils_journal=True,
    moves_load=True,
)
def bounds_changed(scene: Scene) -> None:
    scene.load(MAX)
    scene.settle(240.0)
    scene.app.ask("update", most=MIN)
    scene.wait_status("the fleet stays larger than its maximum", target=MIN, active=MIN)
    scene.app.ask("update", most=MAX)


# -- Kafka ----------------------------------------------------------------------------------------


def _blind(scene: Scene, breaking: AbstractContextManager[None], code: str) -> None:
    """While it is blind, the load changes: the fleet holds, and says so once."""
    target = scene.status()["target"]
    with breaking:
        scene.wait_status(f"no {code}", code=code)
        scene.another_load()
        assert {each["target"] for each in scene.turns(5)} == {target}


@fault(
    "broker",
    "the broker is stopped until the fleet was held for five turns",
    "the fleet is held, which is logged once; the lag is known again afterwards",
    is_outage=True,
    moves_load=True,
)
def broker_stopped(scene: Scene) -> None:
    _blind(scene, broker_away(scene.bed), "not_measured")
    assert scene.warned("Kafka offsets cannot be read") >= 1


@fault(
    "broker",
    "the broker is killed and started again",
    "the fleet is held while it is away; no record is lost",
    is_outage=True,
)
def broker_restarted(scene: Scene) -> None:
    scene.restart_broker()
    scene.batches(1)


@fault(
    "broker",
    "every packet from and to the broker is dropped, in a network of its own",
    "the fleet is held, which is logged once; the lag is known again afterwards",
    is_outage=True,
    needs_root=True,
)
def network_cut(scene: Scene) -> None:
    port = str(scene.bed.broker.port)
    rules = [["OUTPUT", "-p", "tcp", side, port, "-j", "DROP"] for side in ("--dport", "--sport")]
    with (
        scene.command(["iptables", "-A", *rules[0]], ["iptables", "-D", *rules[0]]),
        scene.command(["iptables", "-A", *rules[1]], ["iptables", "-D", *rules[1]]),
    ):
        target = scene.status()["target"]
        scene.wait_status("it is not blind", code="not_measured")
        assert {each["target"] for each in scene.turns(5)} == {target}


@fault("broker", "the topic gets one more partition", "its records are counted and in the lag too")
def partitions_added(scene: Scene) -> None:
    from confluent_kafka.cimpl import NewPartitions

    admin = scene.admin
    scene.partitions += 1
    wanted = [NewPartitions(scene.topic, scene.partitions)]
    admin.create_partitions(wanted)[scene.topic].result(60.0)
    scene.feed._partitions = scene.partitions
    scene.wait(
        lambda: len(scene.job()["offsets"]) == scene.partitions, "the new partition is not read"
    )


@fault(
    "broker",
    "records that are counted already are deleted from the topic",
    "nothing changes: neither counts nor lag",
)
def topic_truncated(scene: Scene) -> None:
    from confluent_kafka import TopicPartition

    admin = scene.admin
    before = scene.job()["before"].items()
    ends = [TopicPartition(scene.topic, int(number), offset) for number, offset in before]
    for answer in admin.delete_records(ends).values():
        answer.result(60.0)
    scene.batches(2)


# -- The driver -----------------------------------------------------------------------------------


def _killed_at(scene: Scene, before: int, after: int) -> None:
    scene.load(before)
    scene.settle(240.0)
    scene.load(after)
    scene.wait_status("no rescale began", target=after)
    scene.kill_driver()
    scene.start_driver()


@fault(
    "driver",
    "SIGKILL to the driver while its fleet grows, then a new one",
    "it goes on from checkpoint and journal, and decides as the first would have",
    kills=1,
    restarts=True,
    moves_load=True,
)
def driver_killed_growing(scene: Scene) -> None:
    _killed_at(scene, MIN, MAX)


@fault(
    "driver",
    "SIGKILL to the driver while its fleet shrinks, then a new one",
    "it goes on from checkpoint and journal, and decides as the first would have",
    kills=1,
    restarts=True,
    moves_load=True,
)
def driver_killed_shrinking(scene: Scene) -> None:
    _killed_at(scene, MAX, MIN)


@fault(
    "driver",
    "SIGSTOP to the driver's Java process for 15 s, as a long collection of garbage",
    "no executor is taken for lost; the target stays",
)
def long_collection(scene: Scene) -> None:
    losses = scene.status()["losses"]
    with scene.stopped(scene.app.pids["java"]):
        passes_s(15.0)
    assert scene.turns(2)[-1]["losses"] == losses


@fault(
    "driver",
    "SIGSTOP to the driver's Python process for 15 s, while the load changes",
    "the job goes on; the next turn decides on what is true then",
    moves_load=True,
)
def python_stopped(scene: Scene) -> None:
    with scene.stopped(scene.app.pids["python"]):
        scene.another_load()
        passes_s(15.0)


@fault(
    "driver",
    "the query is stopped and started again",
    "the new one is followed; the fleet stays",
)
def query_restarted(scene: Scene) -> None:
    scene.app.ask("restart_query")
    scene.batches(2)


@fault(
    "driver",
    "Penstock is stopped and attached again",
    "it goes on from its journal, and the fleet stays",
    restarts=True,
)
def scaler_restarted(scene: Scene) -> None:
    target = scene.status()["target"]
    scene.app.ask("restart_scaler")
    assert {each["target"] for each in scene.turns(3)} == {target}


# -- What Penstock sees and stands on -------------------------------------------------------------


@fault(
    "senses",
    "the status store does not answer",
    "the fleet is held although the load changes, which is logged once",
    moves_load=True,
)
def store_slow(scene: Scene) -> None:
    _blind(scene, scene.broken("break_part", part="store", how="hangs"), "not_measured")


@fault(
    "senses",
    "the status store raises errors",
    "the fleet is held although the load changes, which is logged once",
    moves_load=True,
)
def store_fails(scene: Scene) -> None:
    _blind(scene, scene.broken("break_part", part="store", how="fails"), "not_measured")


@fault(
    "senses",
    "the scheduler raises errors: not even the fleet is known",
    "the fleet is held although the load changes, which is logged once",
    moves_load=True,
)
def scheduler_fails(scene: Scene) -> None:
    _blind(scene, scene.broken("break_part", part="backend", how="fails"), "sensor_blind")


def _lies(scene: Scene, how: str) -> None:
    """The fleet is to shrink meanwhile: who leaves is chosen by what the store says."""
    scene.load(MAX)
    scene.settle(240.0)
    with scene.broken("lying_store", how=how):
        scene.load(MIN)
        scene.turns(10)


@fault(
    "senses",
    "the status store answers NaN for each number, while the fleet shrinks",
    "turns go on, held or not; no such number is in the journal",
    moves_load=True,
)
def store_says_nan(scene: Scene) -> None:
    _lies(scene, "nan")


@fault(
    "senses",
    "the status store answers negative numbers, while the fleet shrinks",
    "turns go on, held or not; no such number is in the journal",
    moves_load=True,
)
def store_says_negative(scene: Scene) -> None:
    _lies(scene, "negative")


@fault(
    "senses",
    "half of the fields of the status store are missing, as in another version of Spark",
    "turns go on, held or not, and the cause is logged once",
    moves_load=True,
)
def store_of_another_version(scene: Scene) -> None:
    _lies(scene, "other version")


@fault(
    "senses",
    "a listener of the user hangs, and with it all reports",
    "the queries are asked instead: no turn is blind",
    moves_load=True,
)
def listener_blocked(scene: Scene) -> None:
    with scene.broken("block_listener"):
        scene.batches(3)
        scene.another_load()
        assert "sensor_blind" not in {each["code"] for each in scene.turns(5)}


def _clock_set(scene: Scene, ahead_s: float) -> None:
    target = scene.status()["target"]
    with scene.broken("set_clock", ahead_s=ahead_s):
        scene.batches(2)
        seen = scene.turns(8)
    assert {each["target"] for each in seen} == {target}
    delays = [each["delay_s"] for each in seen if each["delay_s"] is not None]
    assert max(delays, default=0.0) < 300.0, f"a delay of {max(delays):.0f} s"


@fault(
    "senses",
    "the driver's clock is set an hour ahead, and back later",
    "no turn is left out, no delay is made up, the target stays",
)
def clock_ahead(scene: Scene) -> None:
    _clock_set(scene, 3600.0)


@fault(
    "senses",
    "the driver's clock is set an hour back, and ahead later",
    "no turn is left out, no delay is made up, the target stays",
)
def clock_back(scene: Scene) -> None:
    _clock_set(scene, -3600.0)


# -- Disks ----------------------------------------------------------------------------------------


@fault(
    "disk",
    "the journal's disk is full for five turns",
    "turns go on; it is logged once, and what is missing is logged at the end",
    spoils_journal=True,
    needs_root=True,
)
def journal_disk_full(scene: Scene) -> None:
    filler = scene.journal_disk / "filler"
    with filler.open("wb") as file:
        try:
            while True:
                os.write(file.fileno(), b"x" * 4096)
        except OSError:
            pass  # no space is left
    try:
        scene.wait(lambda: scene.warned("cannot be written"), "it was not said")
        scene.turns(5)
    finally:
        filler.unlink()


@fault(
    "disk",
    "the journal's disk is replaced by an empty read-only one for five turns",
    "turns go on; it is logged once, and what is missing is logged at the end",
    spoils_journal=True,
    needs_root=True,
)
def journal_read_only(scene: Scene) -> None:
    place = str(scene.journal_disk)
    with scene.command(
        ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place], ["umount", "-l", place]
    ):
        scene.wait(lambda: scene.warned("cannot be written"), "it was not said")
        scene.turns(5)


@fault("disk", "the journal is deleted", "turns go on; a new one is begun", spoils_journal=True)
def journal_deleted(scene: Scene) -> None:
    scene.journal.unlink()
    scene.turns(3)
    assert scene.journal.exists()


@fault(
    "disk",
    "the journal is cut in the middle of a line",
    "turns go on; the lines before and after are readable",
    spoils_journal=True,
)
def journal_truncated(scene: Scene) -> None:
    os.truncate(scene.journal, scene.journal.stat().st_size * 2 // 3)
    scene.turns(3)


@fault(
    "disk",
    "the checkpoint's file system is frozen for 15 s, while the load changes",
    "the query waits; turns go on; nothing is counted twice",
    is_outage=True,
    needs_root=True,
    moves_load=True,
)
def checkpoint_frozen(scene: Scene) -> None:
    place = str(scene.checkpoint_disk)
    with scene.command(["fsfreeze", "-f", place], ["fsfreeze", "-u", place]):
        scene.another_load()
        passes_s(15.0)
        scene.turns(2)
