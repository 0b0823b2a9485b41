"""The driver is killed and started again: the job and its scaler go on from what they knew."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.core.journal import read_steps
from penstock.core.knowledge import Knowledge
from penstock.testbed import Testbed, wait_until
from tests.survival.scene import PATIENCE_S, Feed, mentioning, new_topic, results, truth

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

#: An application that grows to as many executors as it has turns behind it, at most three: what
#: it does next depends on what it remembers. It says what it knew at its first turn.
DRIVER = """
import json, sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar
import msgspec
import penstock
from penstock.core.model import Decision, Limits, Reason
from penstock.spark.internals import Driver
from tests.survival.scene import counting, processed
from pyspark import SparkConf
from pyspark.sql import SparkSession

settings = json.loads(sys.argv[1])

def tell(**facts):
    print(json.dumps(facts), flush=True)

class Turns(msgspec.Struct, frozen=True, tag=True):
    taken: int = 0

@dataclass
class Growing:
    period_s: float = 1.0
    default_limits: ClassVar[Limits] = Limits()
    wakes_on_surge: ClassVar[bool] = False
    told: bool = False

    def decide(self, snapshot, knowledge):
        turns = knowledge.recall(Turns).taken
        if not self.told:
            tell(turns=turns, history=len(knowledge.history),
                 rescales=[(each.before, each.after) for each in knowledge.rescales],
                 since_rescale_s=knowledge.since_rescale_s())
        self.told = True
        reason = Reason("growing", f"{turns} turns behind")
        return Decision.of(max(1, min(3, turns)), reason, memory=Turns(turns + 1))

conf = SparkConf().setAll(list(settings["conf"].items()))
spark = SparkSession.builder.config(conf=conf).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
bed = SimpleNamespace(bootstrap_servers=settings["bootstrap"])
names = settings["topic"], settings["output"], settings["checkpoint"]
with counting(bed, spark, *names, cost_s=0.002) as query:
    with penstock.attach(spark, Growing(), min=1, max=4, journal=settings["journal"]) as handle:
        while not query.awaitTermination(1):
            tell(processed=processed(query), executors=len(Driver(spark).executor_ids()))
"""


class Application:
    """The driver as a process; what it tells, line by line."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def told(self, fact: str) -> list[Any]:
        """What it has told of something so far."""
        whole = self._output.read_text().rpartition("\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line[fact] for line in lines if fact in line]

    def latest(self, fact: str) -> Any:
        assert self.process.poll() is None, self._output.with_suffix(".err").read_text()[-2000:]
        told = self.told(fact)
        return told[-1] if told else None

    def kill(self) -> None:
        """SIGKILL to Python and Java at once: nobody has the time to tidy up."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def application(bed: Testbed, output: Path, settings: dict[str, Any]) -> Iterator[Application]:
    argv = [sys.executable, "-c", DRIVER, json.dumps(settings)]
    root = str(Path(__file__).parents[2])
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=bed.driver_environment | {"PYTHONPATH": root},
            start_new_session=True,
        )
    running = Application(process, output)
    try:
        yield running
    finally:
        running.kill()


def test_a_killed_driver_goes_on_from_its_journal_and_its_checkpoint(
    bed: Testbed, tmp_path: Path
) -> None:
    topic, output = new_topic(bed), new_topic(bed)
    journal = tmp_path / "live.jsonl"
    settings = {
        "conf": bed.spark_conf(initial_executors=1, **{"spark.sql.shuffle.partitions": "8"}),
        "bootstrap": bed.bootstrap_servers,
        "topic": topic,
        "output": output,
        "checkpoint": str(tmp_path / "state"),
        "journal": str(journal),
    }
    with Feed(bed, topic, rate_rps=100.0) as feed:
        with application(bed, tmp_path / "first.jsonl", settings) as first:
            wait_until(lambda: first.latest("executors") == 3, PATIENCE_S, "it did not grow")
            wait_until(lambda: first.latest("processed"), PATIENCE_S, "nothing was processed")
            first.kill()
        wait_until(lambda: not mentioning(str(journal)), 30.0, "a driver survived its SIGKILL")
        wait_until(lambda: not bed.executors(), PATIENCE_S, "executors survived their driver")
        knew = Knowledge.from_steps(read_steps(journal))
        with application(bed, tmp_path / "second.jsonl", settings) as second:
            wait_until(lambda: second.latest("executors") == 3, PATIENCE_S, "it did not grow")
            records = feed.end()
            wait_until(
                lambda: second.latest("processed") == records, PATIENCE_S, "records are left over"
            )
    assert first.told("turns") == [0]
    assert first.told("rescales") == [[]]
    # The first turn of the second run knows all turns of the first, and its own snapshot.
    assert knew.last_step is not None
    assert second.told("turns") == [knew.last_step.decision.memory["taken"]]
    assert second.told("turns")[0] > 3
    assert second.told("history") == [len(knew.history) + 1]
    assert second.told("rescales") == [[[1, 2], [2, 3]]]
    assert second.told("since_rescale_s")[0] > 0.0
    steps = list(read_steps(journal))
    at_s = [step.at_s for step in steps]
    assert at_s == sorted(at_s)
    # It begins with the fleet that the journal ends with: no turn has to grow it again.
    again = [step for step in steps if step.receipt is not None][len(knew.rescales) :]
    assert [step.decision.target_executors for step in again] == []
    assert results(bed, output) == truth(records)
