"""Steps of a run, written by hand."""

from __future__ import annotations

from typing import Any

from penstock.core.model import Decision, Fleet, Reason, Receipt, Snapshot, Step

HOLD = Reason("right_size", "4 executors are right")


def seen(at_s: float, executors: int = 4, **metrics: Any) -> Snapshot:
    return Snapshot(at_s, Fleet(executors, executors, executors), **metrics)


def turn(at_s: float, executors: int = 4, wanted: int | None = None, **metrics: Any) -> Step:
    decision = Decision.of(executors if wanted is None else wanted, HOLD)
    receipt = None if decision.target_executors == executors else Receipt(True)
    return Step(at_s, seen(at_s, executors, **metrics), decision, receipt)


def blind(at_s: float, executors: int = 4) -> Step:
    return Step(at_s, None, Decision.of(executors, Reason("sensor_blind", "holding: no answer")))


def six_hours(turns: int = 2160) -> list[Step]:
    """A run at 10 s turns in which every number and every sentence differs from turn to turn."""
    found = []
    for index in range(turns):
        load = 40_000.0 + 31.7 * (index % 977)
        text = f"load {load:.1f} k/s, to reach 51.3 k/s in 12 min, 2.0 s behind; nothing to move"
        evidence = {"load_rps": load, "peak_rps": load * 1.1}
        executors = 4 + index // 5 % 3
        decision = Decision.of(
            executors, Reason(f"plan_{index % 3}", text, evidence), expected_rps=load * 1.3
        )
        snapshot = seen(
            10.0 * index,
            executors,
            arrival_rps=load,
            throughput_rps=load * 0.99,
            delay_s=2.0 + index % 13 / 7.0,
            backlog_records=load * 2.1,
        )
        found.append(Step(10.0 * index, snapshot, decision))
    return found
