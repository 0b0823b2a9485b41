"""A made-up job for the checks: no engine, only numbers that agree, the same in every run."""

from collections.abc import Callable, Iterator
from traceback import walk_tb
from typing import Literal

from msgspec import Struct

from penstock.core import model
from penstock.core.guards import Guards
from penstock.core.knowledge import Knowledge
from penstock.core.protocols import Policy

Shape = Literal["continuous", "micro_batch"]
SHAPES: tuple[Shape, ...] = ("continuous", "micro_batch")
#: What a policy gets to see of a snapshot at a turn.
SnapshotView = Callable[[model.Snapshot, int], model.Snapshot]

CYCLE_TURNS = 100  #: After this many turns the load repeats itself.
#: When the made-up job is first seen; late enough for clocks to be set back.
START_AT_S = 100_000.0


def made_up_snapshot(shape: Shape, turn: int, at_s: float, executors: int) -> model.Snapshot:
    """What a made-up job shows at one turn, with everything measured.

    The load is a triangle between 400 and 3,600 records/s that repeats every 100 turns, the last
    ten of which bring nothing at all; an executor can do 400. What is above that waits. Every 50
    turns the oldest executor is replaced by one with a new id, as happens in any real fleet.
    """
    phase = turn % CYCLE_TURNS
    arrival_rps = 400.0 + 64.0 * min(phase, CYCLE_TURNS - phase) if phase < 90 else 0.0
    capacity_rps = 400.0 * max(1, executors)
    throughput_rps = min(arrival_rps, capacity_rps) if executors else 0.0
    busy = min(1.0, arrival_rps / capacity_rps)
    backlog_records = 0.1 * arrival_rps + 20.0 * max(0.0, arrival_rps - capacity_rps)
    pressed = max(0.0, 1.0 - capacity_rps / max(1.0, arrival_rps))
    first_id = turn // 50
    # Executors differ a little, so that means and maxima are not the same.
    samples = tuple(
        model.ExecutorSample(
            id=str(first_id + number),
            started_at_s=START_AT_S - 600.0,
            cpu_fraction=busy * (0.9 + 0.01 * (number % 7)),
            busy_fraction=busy,
            memory_fraction=0.3 + 0.2 * busy,
            throughput_rps=throughput_rps / executors,
            state_partitions=4,
        )
        for number in range(executors)
    )
    is_batched = shape == "micro_batch"
    # A dataflow has an instance per executor, a batch a task per partition.
    tasks = 64 if is_batched else max(1, executors)
    duration_s = 1.0 + 8.0 * arrival_rps / capacity_rps
    batch = model.Batch(
        turn, at_s - duration_s, duration_s, int(arrival_rps * 10), {"addBatch": 1.0}
    )
    return model.Snapshot(
        at_s=at_s,
        fleet=model.Fleet(executors, executors, executors, cores_per_executor=2),
        trigger_interval_s=10.0 if is_batched else None,
        batches=(batch,) if is_batched else (),
        arrival_rps=arrival_rps,
        throughput_rps=throughput_rps,
        backlog_records=backlog_records,
        delay_s=backlog_records / max(1.0, throughput_rps),
        latency_s=duration_s if is_batched else 0.2,
        executors=samples,
        operators=_pipeline(arrival_rps, throughput_rps, busy, pressed, tasks),
        partitions=64,
        state_bytes=1e8,
        checkpoint_interval_s=10.0,
    )


def bare_snapshot(at_s: float, executors: int) -> model.Snapshot:
    """What is seen of a job of which nothing is measured."""
    return model.Snapshot(at_s, model.Fleet(executors, executors, executors))


def _pipeline(
    arrival_rps: float, throughput_rps: float, busy: float, pressed: float, tasks: int
) -> tuple[model.OperatorSample, ...]:
    """A source, a filter that lets half pass, and a count behind it."""

    def operator(name: str, feed: str | None, share: float, passes: float) -> model.OperatorSample:
        is_source = feed is None
        busy_fraction = busy * (0.5 if is_source else 1.0) * (1.0 - pressed * is_source)
        return model.OperatorSample(
            name=name,
            upstream=() if feed is None else (feed,),
            input_rps=throughput_rps * share,
            output_rps=throughput_rps * share * passes,
            busy_fraction=busy_fraction,
            backpressured_fraction=pressed if is_source else 0.0,
            idle_fraction=max(0.0, 1.0 - busy_fraction - pressed * is_source),
            backlog_records=10.0 * max(0.0, arrival_rps - throughput_rps),
            service_time_s=0.002,
            service_cv2=0.5,
            arrival_cv2=1.0,
            tasks=tasks,
        )

    source, filtered = operator("source", None, 1.0, 1.0), operator("filter", "source", 1.0, 0.5)
    return source, filtered, operator("count", "filter", 0.5, 0.1)


class Turn(Struct, frozen=True):
    """One turn of a run: what was seen, what the policy said, what came of it."""

    snapshot: model.Snapshot
    decision: model.Decision
    step: model.Step


def run(
    policy: Policy,
    shape: Shape,
    turns: int,
    *,
    knowledge: Knowledge | None = None,
    limits: model.Limits | None = None,
    seen: SnapshotView = lambda snapshot, _turn: snapshot,
    condition: str = "",
) -> Iterator[Turn]:
    """Let the policy scale the made-up job; what it asks for is there one turn later.

    `seen` may change what the policy gets to see; `condition` names that change in an error.
    """
    knowledge = Knowledge() if knowledge is None else knowledge
    limits = model.Limits(min_executors=1, max_executors=16) if limits is None else limits
    executors = limits.min_executors
    for turn in range(turns):
        at_s = START_AT_S + turn * policy.period_s
        snapshot = seen(made_up_snapshot(shape, turn, at_s, executors), turn)
        at_s = snapshot.at_s
        knowledge.learn(snapshot, at_s)
        decision = ask(policy, snapshot, knowledge, f"on turn {turn} ({shape}{condition})")
        overridden = Guards(limits).check(decision, snapshot, knowledge)
        is_change = overridden.target_executors != snapshot.fleet.target
        step = model.Step(
            at_s, snapshot, overridden, model.Receipt(accepted=True) if is_change else None
        )
        knowledge.remember(step)
        executors = overridden.target_executors
        yield Turn(snapshot, decision, step)


def ask(
    policy: Policy, snapshot: model.Snapshot, knowledge: Knowledge, where: str
) -> model.Decision:
    """What the policy decides; `AssertionError` where that fails or no fleet can be that large."""
    try:
        decision = policy.decide(snapshot, knowledge)
    except Exception as error:
        _assert_whole(_refused_target(error), where)
        raise AssertionError(f"{where} it raises {type(error).__name__}: {error}") from error
    _assert_whole(decision.target_executors, where)
    return decision


def _assert_whole(target: object, where: str) -> None:
    # Nor a bool or an integer of numpy, which no journal can write.
    if type(target) is not int or target < 0:
        raise AssertionError(f"{where} its target is {target!r}, not a whole number of 0 or more")


def _refused_target(error: BaseException) -> object:
    """The target that `Decision` refused, where that is what was raised; 0 for another error."""
    *_, (frame, _line) = walk_tb(error.__traceback__)
    refused = frame.f_locals.get("self")
    return refused.target_executors if isinstance(refused, model.Decision) else 0
