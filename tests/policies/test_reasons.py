"""Reasons read well at three in the morning: no "1 executors", no "0.0 k/s", no "in 0 s"."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from penstock.core.knowledge import Knowledge
from penstock.core.model import ExecutorSample, Fleet, OperatorSample, Snapshot
from penstock.policies import POLICIES
from penstock.policies.checks.made_up_job import SHAPES, Shape, run
from penstock.policies.kubernetes.hpa import Hpa
from penstock.policies.kubernetes.varga import Varga

BADLY_PUT = re.compile(
    r"\b1 (executors|records|tasks|batches|instances)\b|\b1 executor (carry|stay|are|need)\b"
    r"|\bin 0 (s|min)\b|\b0\.\d k/s\b|0\.00 executor-hours"
)


def _quiet(snapshot: Snapshot, _turn: int) -> Snapshot:
    """The same job at a hundredth of its load."""
    rates: dict[str, Any] = {
        name: value / 100.0
        for name in ("arrival_rps", "throughput_rps", "backlog_records")
        if (value := getattr(snapshot, name)) is not None
    }
    operators = tuple(
        structs.replace(o, input_rps=(o.input_rps or 0) / 100, output_rps=(o.output_rps or 0) / 100)
        for o in snapshot.operators
    )
    return structs.replace(snapshot, **rates, operators=operators)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", POLICIES)
def test_no_reason_of_any_policy_is_badly_put(name: str, shape: Shape) -> None:
    policy: Any = POLICIES[name]()
    if name == "phoebe":
        policy = replace(policy, capacity=((1, 4e3), (8, 32e3)), latency=((1, 4e3, 1.0),))
    turns = [*run(policy, shape, 110), *run(policy, shape, 110, seen=_quiet)]
    texts = {reason.text for turn in turns for reason in turn.step.decision.reasons}
    assert [text for text in texts if BADLY_PUT.search(text)] == []


def _cpu(fraction: float, executors: int) -> Snapshot:
    samples = tuple(ExecutorSample(str(i), 0.0, cpu_fraction=fraction) for i in range(executors))
    return Snapshot(900.0, Fleet(executors, executors, executors), executors=samples)


@pytest.mark.parametrize(
    ("fraction", "executors", "said"),
    [
        (0.88, 4, "88 % for a target of 80 %: within the tolerance of 10 %, 4 executors stay"),
        (0.8, 1, "80 % for a target of 80 %: within the tolerance of 10 %, 1 executor stays"),
        (0.5, 1, "50 % for a target of 80 %: 1 executor stays"),
        (0.95, 4, "95 % for a target of 80 %: 5 executors instead of 4"),
    ],
)
def test_hpa_names_the_tolerance_where_it_decides(
    fraction: float, executors: int, said: str
) -> None:
    decision = Hpa(cpu_target_fraction=0.8).decide(_cpu(fraction, executors), Knowledge())
    assert decision.reasons[0].text == f"cpu at {said}"


@pytest.mark.parametrize(
    ("lags", "said"),
    [
        ((800.0, 400.0), "the lag of 400 records is short (up to 50000)"),
        ((60e3, 90e3), "the lag of 90000 records grows by 2.0 k/s while 10.0 k/s are read"),
        ((90e3, 60e3), "the lag of 60000 records falls by 2.0 k/s while 10.0 k/s are read"),
    ],
)
def test_varga_says_in_words_what_the_queue_does(lags: tuple[float, float], said: str) -> None:
    knowledge = Knowledge()
    work = OperatorSample("count", upstream=("kafka",), idle_fraction=0.3)
    for at_s, lag in zip((0.0, 15.0), lags, strict=True):
        now = Snapshot(
            at_s, Fleet(4, 4, 4), backlog_records=lag, throughput_rps=10e3, operators=(work,)
        )
        knowledge.learn(now, at_s)
    text = Varga().decide(now, knowledge).reasons[0].text
    assert said in text
    assert "-1.00" not in text
