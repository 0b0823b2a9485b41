"""Kafka: its broker, the way to it, and the topic."""

from __future__ import annotations

from contextlib import ExitStack

from tests.chaos.faults.table import fault
from tests.chaos.scene import Scene
from tests.survival.scene import broker_away

HELD = "the fleet is held although the load changes, which is logged once"


@fault(HELD, is_outage=True, moves_load=True)
def broker_stopped(scene: Scene) -> None:
    """The broker is stopped until the fleet was held for five turns."""
    scene.holds_while(broker_away(scene.bed), "not_measured")
    assert scene.warned("Kafka offsets cannot be read") >= 1


@fault("the fleet stays; no record is lost", is_outage=True)
def broker_restarted(scene: Scene) -> None:
    """The broker is killed and started again."""
    scene.restart_broker()
    scene.batches(1)


@fault(HELD, is_outage=True, moves_load=True, needs_root=True)
def network_cut(scene: Scene) -> None:
    """Every packet from and to the broker is dropped, in a network of its own."""
    port = str(scene.bed.broker.port)
    with ExitStack() as cut:
        for side in ("--dport", "--sport"):
            rule = ["OUTPUT", "-p", "tcp", side, port, "-j", "DROP"]
            cut.enter_context(scene.command(["iptables", "-A", *rule], ["iptables", "-D", *rule]))
        scene.holds_while(cut.pop_all(), "not_measured")


@fault("its records are counted and in the lag too")
def partitions_added(scene: Scene) -> None:
    """The topic gets one more partition."""
    scene.add_partition()
    scene.wait(
        lambda: len(scene.job()["offsets"]) == scene.partitions, "the new partition is not read"
    )


@fault("nothing changes: neither counts nor lag")
def topic_truncated(scene: Scene) -> None:
    """Records that are counted already are deleted from the topic."""
    from confluent_kafka import TopicPartition

    admin = scene.admin  # in a variable: a client that nobody holds ends its request
    before = scene.job()["before"].items()
    ends = [TopicPartition(scene.topic, int(number), offset) for number, offset in before]
    for answer in admin.delete_records(ends).values():
        answer.result(60.0)
    scene.holds(turns=2)
    scene.batches(2)
