"""The clauses of the contract: each raises `AssertionError` when a policy breaks it.

The first ones are about how a policy is written down: its class, parameters, docstring and file.
"""

import dataclasses
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import inf, isfinite, nan
from typing import Any

import msgspec
from msgspec import Struct, structs

from penstock.core.errors import ModelError
from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, ExecutorSample, Limits, OperatorSample, Snapshot, Step
from penstock.core.protocols import Policy
from penstock.policies import POLICIES
from penstock.policies.checks.made_up_job import (
    CYCLE_TURNS,
    SHAPES,
    START_AT_S,
    SnapshotView,
    ask,
    bare_snapshot,
    made_up_snapshot,
    run,
)
from penstock.policies.documentation import documentation, parameters

#: A memory may vary by this much from run to run of the same load: numbers get more digits.
MEMORY_SLACK_FRACTION, MEMORY_SLACK_BYTES, MEMORY_MOST_BYTES = 0.05, 512, 256 * 1024
#: A memory that grows by less in a cycle of 100 turns stays inside that slack in 1,000.
MEMORY_STEADY_BYTES = 32

#: What the docstring of a policy must have, in this order; the documentation is made from it.
SECTIONS = ("Parameters", "Examples", "References", "Where we differ", "Wins and loses")

_encode = msgspec.json.Encoder().encode


def is_frozen_with_sound_parameters(policy: Policy) -> None:
    """A frozen dataclass, asked every `period_s`, whose parameters survive a file."""
    kind: Any = type(policy)
    name = kind.__name__
    assert dataclasses.is_dataclass(kind), f"{name} must be a dataclass"
    frozen = getattr(kind, "__dataclass_params__").frozen  # noqa: B009
    assert frozen, f"{name} must be frozen: its fields are parameters, not state"
    period_s = getattr(policy, "period_s", None)
    assert isinstance(period_s, int | float), f"{name} must have a field period_s in seconds"
    assert 0.0 < period_s < inf, f"period_s must be positive and finite, not {period_s}"
    wakes = getattr(kind, "wakes_on_surge", None)
    assert isinstance(wakes, bool), (
        f"{name} has no wakes_on_surge: write `wakes_on_surge: ClassVar[bool] = False`"
    )
    back = msgspec.convert(msgspec.to_builtins(policy), kind)
    assert back == policy, f"parameters changed on their way through a file: {policy} -> {back}"


def has_default_limits(policy: Policy) -> None:
    """The class says which guards belong to the rule: `default_limits`, a class variable."""
    kind: Any = type(policy)
    name = kind.__name__
    limits = getattr(kind, "default_limits", None)
    assert limits is not None, (
        f"{name} has no default_limits: write `default_limits: ClassVar[Limits] = Limits()`"
    )
    assert isinstance(limits, Limits), f"{name}.default_limits must be Limits, not {limits!r}"


def has_a_complete_docstring(policy: Policy) -> None:
    """A first sentence, all sections in their order, and an example."""
    text = _docstring(policy)
    assert text.splitlines()[0].endswith("."), "the docstring must begin with one sentence"
    at = 0
    for section in ("The rule:", *(f"{name}\n" for name in SECTIONS)):
        at = text.find(section, at)
        assert at >= 0, f"the docstring lacks {section.strip()!r} or has it out of order"
    assert ">>>" in text[text.find("Examples\n") :], "the docstring has no example to run"


def documents_its_parameters(policy: Policy) -> None:
    """Every field is in the docstring's Parameters (`low, high: The bounds.`), and nothing else."""
    kind: Any = type(policy)
    names = {name for each, _ in parameters(_docstring(policy)) for name in each}
    fields = {field.name for field in dataclasses.fields(kind)}
    assert fields <= names, f"the docstring does not document the parameter {min(fields - names)!r}"
    assert names <= fields, (
        f"the docstring documents {min(names - fields)!r}, which is no parameter of {kind.__name__}"
    )


def has_the_file_that_its_name_promises(policy: Policy) -> None:
    """Of the table: `name` is policies/name.py or policies/folder/name.py; others are anywhere."""
    module = type(policy).__module__
    for name in (name for name, kind in POLICIES.items() if kind is type(policy)):
        assert re.fullmatch(rf"penstock\.policies\.(\w+\.)?{name}", module), (
            f"the table calls it {name!r}, but its module is {module}: "
            f"it must be policies/{name}.py or policies/<folder>/{name}.py"
        )


def asks_for_whole_executors(policy: Policy) -> None:
    """A target is a whole number of 0 or more, at the start and while the load changes."""
    for shape in SHAPES:
        cold = made_up_snapshot(shape, 30, START_AT_S, 4)
        ask(policy, cold, Knowledge(), f"on a cold start ({shape})")
        for _ in run(policy, shape, 30):
            pass


def tags_its_memory(policy: Policy) -> None:
    """What it remembers names its own type, so that no policy reads the memory of another."""
    for shape in SHAPES:
        memories = (turn.decision.memory for turn in run(policy, shape, CYCLE_TURNS))
        memory = next((one for one in memories if one is not None), None)
        if memory is None:
            continue
        kind = type(memory)
        name = kind.__name__
        assert isinstance(memory, Struct), f"its memory must be a msgspec.Struct, not {name}"
        assert kind.__struct_config__.tag is not None, (
            f"its memory {name} has no tag: write `class {name}(Struct, frozen=True, tag=True)`, "
            "or after a restart it reads the memory of another policy as its own"
        )


def is_pure(policy: Policy) -> None:
    """Asked twice, it gives the same answer, and what it was given has not changed."""
    for shape in SHAPES:
        knowledge = Knowledge()
        for turn in run(policy, shape, 30, knowledge=knowledge):
            before = _wire(turn.snapshot, knowledge)
            where = f"on turn {len(knowledge.history)} ({shape})"
            first = ask(policy, turn.snapshot, knowledge, where)
            second = ask(policy, turn.snapshot, knowledge, where)
            assert _encode(first) == _encode(second), f"asked twice {where}, it answers differently"
            after = _wire(turn.snapshot, knowledge)
            assert before == after, f"deciding {where} changed its arguments"


def decides_the_same_after_a_restart(policy: Policy) -> None:
    """Knowledge that went through the journal gives the decisions of the one that did not."""
    decoder = msgspec.json.Decoder(Step)
    for shape in SHAPES:
        turns = list(run(policy, shape, 60))
        try:
            steps = [decoder.decode(_encode(turn.step)) for turn in turns]
        except TypeError as error:
            raise AssertionError(f"its memory cannot be written to a journal: {error}") from error
        for count in (1, 2, 7, 25, 59):
            knowledge = Knowledge.from_steps(steps[:count])
            snapshot, expected, _ = structs.astuple(turns[count])
            knowledge.learn(snapshot, snapshot.at_s)
            again = ask(policy, snapshot, knowledge, f"after a restart on turn {count} ({shape})")
            assert _encode(again) == _encode(expected), (
                f"after a restart on turn {count} ({shape}) it wants {again.target_executors} "
                f"instead of {expected.target_executors} executors, or remembers otherwise"
            )


def starts_cold(policy: Policy) -> None:
    """Without a history it decides soundly, whether the fleet is small, large or empty."""
    for shape, executors, knows_snapshot in product(SHAPES, (0, 1, 4, 40), (False, True)):
        snapshot = made_up_snapshot(shape, 30, START_AT_S, executors)
        knowledge = Knowledge()
        if knows_snapshot:
            knowledge.learn(snapshot, snapshot.at_s)
        where = f"on a cold start with {executors} executors ({shape})"
        _assert_sound(ask(policy, snapshot, knowledge, where), where)


def holds_when_nothing_is_measured(policy: Policy) -> None:
    """No metric at all: hold and say `not_measured`; a fixed fleet, which measures none, may."""
    if _ignores_measurements(policy):
        return
    bare = bare_snapshot(START_AT_S, 5)
    cold = ask(policy, bare, Knowledge(), "when nothing is measured")
    codes = [reason.code for reason in cold.reasons]
    assert "not_measured" in codes, f"nothing was measured, but its reasons are {codes}"
    assert cold.target_executors == 5, (
        f"nothing was measured, but it goes from 5 to {cold.target_executors} executors"
    )
    for shape in SHAPES:
        knowledge = Knowledge()
        *_, last = run(policy, shape, 40, knowledge=knowledge)
        bare = bare_snapshot(last.snapshot.at_s + policy.period_s, 5)
        knowledge.learn(bare, bare.at_s)
        warm = ask(policy, bare, knowledge, f"when measurements stop ({shape})")
        assert warm.target_executors == 5, (
            f"measurements stopped ({shape}), but it goes from 5 to {warm.target_executors}"
        )


def bears_any_single_missing_metric(policy: Policy) -> None:
    """Whichever one metric is missing, everywhere or on some executors only: a sound decision."""
    for name, without in _without_one_metric():
        _assert_sound_run(policy, 12, without, f", without {name}")


def gives_reasons(policy: Policy) -> None:
    """Every decision says why: a code for machines, a sentence for people, finite numbers."""
    _assert_sound_run(policy, CYCLE_TURNS, lambda snapshot, _turn: snapshot, "")


def stays_in_bounds_after_guards(policy: Policy) -> None:
    """After the guards its targets are inside the bounds, also where these allow one size only."""
    narrow = [Limits(min_executors=least, max_executors=most) for least, most in ((2, 5), (3, 3))]
    for limits in (policy.default_limits, *narrow):
        for shape in SHAPES:
            for turn in run(policy, shape, CYCLE_TURNS, limits=limits):
                target = turn.step.decision.target_executors
                assert limits.min_executors <= target <= limits.max_executors, (
                    f"{target} executors are outside of {limits.min_executors} to "
                    f"{limits.max_executors} ({shape})"
                )


def keeps_a_bounded_memory(policy: Policy) -> None:
    """What it remembers does not grow with the age of the job or with executors that left.

    A memory that has stopped growing after three cycles is not watched until turn 2,000.
    """
    sizes: list[int] = []
    for turn in run(policy, "micro_batch", 2000):
        sizes.append(len(_encode(turn.decision.memory)))
        if len(sizes) == 3 * CYCLE_TURNS:
            second, third = sizes[CYCLE_TURNS:-CYCLE_TURNS], sizes[-CYCLE_TURNS:]
            if max(third) <= max(second) + MEMORY_STEADY_BYTES:
                break
    most = max(sizes[-500:])
    assert most <= MEMORY_MOST_BYTES, f"its memory takes {most} bytes, {MEMORY_MOST_BYTES} at most"
    if len(sizes) == 2000:
        young = max(sizes[500:1000])
        assert most <= young * (1.0 + MEMORY_SLACK_FRACTION) + MEMORY_SLACK_BYTES, (
            f"its memory grew from {young} bytes before turn 1,000 to {most} before turn 2,000"
        )


def bears_a_clock_that_jumps_back(policy: Policy) -> None:
    """A clock that is set back by an hour does not stop it."""

    def set_back(snapshot: Snapshot, turn: int) -> Snapshot:
        return snapshot if turn < 20 else structs.replace(snapshot, at_s=snapshot.at_s - 3600.0)

    _assert_sound_run(policy, 40, set_back, ", clock set back")


def bears_executors_that_it_never_saw(policy: Policy) -> None:
    """All executors are replaced at once, some are not ready, some were never announced."""

    def replaced(snapshot: Snapshot, turn: int) -> Snapshot:
        if turn < 20:
            return snapshot
        strangers = tuple(
            structs.replace(e, id=f"new-{turn}-{e.id}", ready=number % 2 == 0)
            for number, e in enumerate(snapshot.executors)
        )
        return structs.replace(snapshot, executors=strangers)

    _assert_sound_run(policy, 40, replaced, ", executors replaced")


def bears_a_fleet_of_none(policy: Policy) -> None:
    """With no executor left it decides soundly; the bounds bring the fleet back."""

    def emptied(snapshot: Snapshot, turn: int) -> Snapshot:
        return snapshot if turn < 10 else made_up_snapshot("continuous", turn, snapshot.at_s, 0)

    for turn in run(policy, "continuous", 20, seen=emptied, condition=", no executor left"):
        _assert_sound(turn.decision, "with no executor left")
        assert turn.step.decision.target_executors >= 1, "the guards left an empty fleet"


def is_never_given_impossible_numbers(policy: Policy) -> None:  # noqa: ARG001
    """NaN, infinite and negative measurements are refused before any policy sees them."""
    whole = made_up_snapshot("micro_batch", 0, START_AT_S, 1)
    for value in (whole, whole.executors[0], whole.operators[0]):
        for name in _metrics(type(value)):
            for impossible in (nan, inf, -1.0):
                if not isinstance(getattr(value, name), float) and impossible != -1.0:
                    continue
                try:
                    structs.replace(value, **{name: impossible})
                except ModelError:
                    continue
                raise AssertionError(f"{type(value).__name__}.{name} = {impossible} was let in")


def _assert_sound_run(policy: Policy, turns: int, seen: SnapshotView, condition: str) -> None:
    for shape in SHAPES:
        for number, turn in enumerate(run(policy, shape, turns, seen=seen, condition=condition)):
            _assert_sound(turn.decision, f"on turn {number} ({shape}{condition})")


def _assert_sound(decision: Decision, where: str) -> None:
    assert decision.reasons, f"{where} it gives no reason"
    for reason in decision.reasons:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", reason.code), (
            f"{where} the reason code {reason.code!r} is not snake_case"
        )
        assert reason.text.strip(), f"{where} the reason {reason.code} says nothing"
        assert "\n" not in reason.text, f"{where} the reason {reason.code} is not one sentence"
        for name, number in reason.evidence.items():
            assert isfinite(number), f"{where} the evidence {name} is {number}"
    promise = decision.expected_rps
    assert promise is None or 0.0 <= promise < inf, f"{where} it promises {promise} records/s"


def _docstring(policy: Policy) -> str:
    return documentation(type(policy)) + "\n"


def _wire(snapshot: Snapshot, knowledge: Knowledge) -> bytes:
    """All that a policy is given, as bytes."""
    past = [list(one) for one in (knowledge.history, knowledge.rescales, knowledge.recommendations)]
    return _encode((snapshot, knowledge.now_s, past, knowledge.last_step))


def _ignores_measurements(policy: Policy) -> bool:
    """Whether it wants the same fleet at high load, at low load and blind, from any fleet."""
    snapshots = [bare_snapshot(START_AT_S, executors) for executors in (3, 5)]
    for shape in SHAPES:
        snapshots += [made_up_snapshot(shape, turn, START_AT_S, 5) for turn in (0, 50)]
    decisions = [ask(policy, one, Knowledge(), "on a cold start") for one in snapshots]
    return len({decision.target_executors for decision in decisions}) == 1


def _metrics(kind: type[Struct]) -> list[str]:
    """The fields that may be missing."""
    return [field.name for field in structs.fields(kind) if field.default is None]


def _without_one_metric() -> Iterator[tuple[str, SnapshotView]]:
    """For each metric, its name and a function that hides it."""
    empty: dict[str, Any] = dict.fromkeys(("batches", "executors", "operators"), ())
    for name, nothing in {**dict.fromkeys(_metrics(Snapshot)), **empty}.items():
        yield name, partial(_replaced, name=name, nothing=nothing)
    for part, kind in (("executors", ExecutorSample), ("operators", OperatorSample)):
        for name in _metrics(kind):
            for every, which in ((1, ""), (2, " of every second")):
                yield f"{part}.{name}{which}", partial(_hidden, part=part, name=name, every=every)


def _replaced(snapshot: Snapshot, _turn: int, *, name: str, nothing: Any) -> Snapshot:
    return structs.replace(snapshot, **{name: nothing})


def _hidden(snapshot: Snapshot, _turn: int, *, part: str, name: str, every: int) -> Snapshot:
    values = tuple(
        structs.replace(value, **{name: None}) if number % every == 0 else value
        for number, value in enumerate(getattr(snapshot, part))
    )
    return structs.replace(snapshot, **{part: values})


CLAUSES: tuple[Callable[[Policy], None], ...] = (
    is_frozen_with_sound_parameters,
    has_default_limits,
    has_a_complete_docstring,
    documents_its_parameters,
    has_the_file_that_its_name_promises,
    asks_for_whole_executors,
    tags_its_memory,
    is_pure,
    decides_the_same_after_a_restart,
    starts_cold,
    holds_when_nothing_is_measured,
    bears_any_single_missing_metric,
    gives_reasons,
    stays_in_bounds_after_guards,
    keeps_a_bounded_memory,
    bears_a_clock_that_jumps_back,
    bears_executors_that_it_never_saw,
    bears_a_fleet_of_none,
    is_never_given_impossible_numbers,
)
