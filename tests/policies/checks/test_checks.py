"""Each clause of the contract catches the policy that breaks it, and says how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import nan
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
from msgspec import Meta, Struct

from penstock.core.knowledge import Knowledge
from penstock.core.model import Decision, Limits, Reason, Snapshot, not_measured
from penstock.core.protocols import Policy
from penstock.policies import POLICIES
from penstock.policies.checks import clauses, yield_checks
from penstock.policies.checks.clauses import CLAUSES
from penstock.policies.checks.made_up_job import SHAPES, made_up_snapshot, run
from penstock.policies.static import Static
from penstock.policies.thresholds.thresholds import Thresholds


class Past(Struct, frozen=True, tag=True):
    rates: tuple[float, ...] = ()


class Untagged(Struct, frozen=True):
    turns: int = 0


Rule = Callable[[Snapshot, Knowledge], Decision]


def policy_of(rule: Rule) -> Policy:
    """A policy with one broken rule and nothing else wrong that its clause checks."""

    @dataclass(frozen=True)
    class Broken:
        """A rule for the tests."""

        period_s: Annotated[float, Meta(gt=0)] = 10.0
        default_limits: ClassVar[Limits] = Limits()
        wakes_on_surge: ClassVar[bool] = False

        def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
            return rule(snapshot, knowledge)

    return Broken()


def say(target: int, memory: Any = None, **evidence: float) -> Decision:
    return Decision.of(target, Reason("test", "a test", evidence), memory=memory)


def needed(snapshot: Snapshot) -> int:
    return round((snapshot.arrival_rps or 0.0) / 400.0)


def remembers_everything(snapshot: Snapshot, knowledge: Knowledge) -> Decision:
    rates = (*knowledge.recall(Past).rates, snapshot.arrival_rps or 0.0)
    return say(3, Past(rates))


def forgets_on_restart(_snapshot: Snapshot, knowledge: Knowledge) -> Decision:
    last = knowledge.last_step
    before = 1 if last is None or not isinstance(last.decision.memory, Past) else 2
    return say(before, Past())


def spoils_its_arguments(snapshot: Snapshot, knowledge: Knowledge) -> Decision:
    knowledge.recommendations.clear()
    return say(snapshot.fleet.target)


def needs_a_past(_snapshot: Snapshot, knowledge: Knowledge) -> Decision:
    return say(needed(knowledge.history[-2]) if len(knowledge.history) > 1 else 1 // 0)


def trusts_the_clock(snapshot: Snapshot, knowledge: Knowledge) -> Decision:
    since_s = snapshot.at_s - knowledge.latest(2)[0].at_s
    if since_s < 0:
        raise ValueError("time flies backwards")
    return say(3)


def knows_all_executors(snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    if any(executor.id.startswith("new") for executor in snapshot.executors):
        raise KeyError("who is that?")
    return say(3)


def divides_by_the_fleet(snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(round((snapshot.arrival_rps or 0.0) / snapshot.fleet.active))


def asks_for_nan(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(3, load=nan)


def shouts(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return Decision.of(3, Reason("Not Snake", "a test"))


def says_nothing(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return Decision.of(3, Reason("quiet", " "))


def keeps_an_object(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(3, memory=object())


def forgets_the_tag(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(3, memory=Untagged())


def remembers_a_dict(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(3, memory={"turns": 3})


def wants_a_fraction(snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say((snapshot.arrival_rps or 0.0) / 400.0)  # type: ignore[arg-type]


def wants_less_than_none(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(-1)


def wants_a_text(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say("3")  # type: ignore[arg-type]


def wants_an_integer_of_numpy(_snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(np.int64(3))  # type: ignore[arg-type]


def moves_blind(snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    if snapshot.arrival_rps is None:
        return not_measured(snapshot.fleet.target + 1, "arrival_rps")
    return say(needed(snapshot))


def takes_none_for_zero(snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(needed(snapshot))


def multiplies_none(snapshot: Snapshot, _knowledge: Knowledge) -> Decision:
    return say(round(snapshot.backlog_records * 1.0))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("rule", "clause", "complaint"),
    [
        (remembers_everything, clauses.keeps_a_bounded_memory, "memory grew from .* to"),
        (forgets_on_restart, clauses.decides_the_same_after_a_restart, "after a restart on turn 1"),
        (keeps_an_object, clauses.decides_the_same_after_a_restart, "cannot be written"),
        (spoils_its_arguments, clauses.is_pure, "changed its arguments"),
        (forgets_the_tag, clauses.tags_its_memory, r"memory Untagged has no tag: write `class"),
        (remembers_a_dict, clauses.tags_its_memory, "must be a msgspec.Struct, not dict"),
        (wants_a_fraction, clauses.asks_for_whole_executors, r"target is 5\.8, not a whole number"),
        (wants_less_than_none, clauses.asks_for_whole_executors, "target is -1, not a whole"),
        (wants_a_text, clauses.asks_for_whole_executors, "target is '3', not a whole number"),
        (wants_an_integer_of_numpy, clauses.asks_for_whole_executors, "not a whole number"),
        (wants_less_than_none, clauses.starts_cold, "0 executors .* target is -1, not a whole"),
        (needs_a_past, clauses.starts_cold, "raises ZeroDivisionError: .* by zero"),
        (trusts_the_clock, clauses.bears_a_clock_that_jumps_back, "raises ValueError: .*backwards"),
        (knows_all_executors, clauses.bears_executors_that_it_never_saw, "who is that"),
        (divides_by_the_fleet, clauses.bears_a_fleet_of_none, "by zero"),
        (asks_for_nan, clauses.gives_reasons, "evidence load is nan"),
        (shouts, clauses.gives_reasons, "'Not Snake' is not snake_case"),
        (says_nothing, clauses.gives_reasons, "quiet says nothing"),
        (moves_blind, clauses.holds_when_nothing_is_measured, "from 5 to 6 executors"),
        (takes_none_for_zero, clauses.holds_when_nothing_is_measured, r"reasons are \['test'\]"),
        (multiplies_none, clauses.bears_any_single_missing_metric, "without backlog_.*NoneType"),
        (takes_none_for_zero, clauses.has_a_complete_docstring, "lacks 'The rule:'"),
    ],
    ids=lambda value: getattr(value, "__name__", "") if callable(value) else "",
)
def test_a_clause_catches_who_breaks_it(
    rule: Rule, clause: Callable[[Policy], None], complaint: str
) -> None:
    with pytest.raises(AssertionError, match=complaint) as raised:
        clause(policy_of(rule))
    assert "\n" not in str(raised.value).partition("\nassert ")[0]


def test_a_policy_that_counts_its_calls_is_not_pure() -> None:
    calls = count()
    with pytest.raises(AssertionError, match=r"asked twice .* it answers differently"):
        clauses.is_pure(policy_of(lambda _snapshot, _knowledge: say(next(calls))))


def test_a_policy_that_can_be_changed_is_refused() -> None:
    @dataclass
    class Loose:
        period_s: float = 1.0
        default_limits: ClassVar[Limits] = Limits()
        wakes_on_surge: ClassVar[bool] = False

        def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
            return say(1)

    with pytest.raises(AssertionError, match="Loose must be frozen"):
        clauses.is_frozen_with_sound_parameters(Loose())


def test_a_policy_without_default_limits_is_told_what_to_write() -> None:
    class Unlimited:
        period_s = 10.0

    with pytest.raises(AssertionError, match="Unlimited has no default_limits: write `default_l"):
        clauses.has_default_limits(Unlimited())  # type: ignore[arg-type]


def test_a_policy_that_does_not_say_whether_a_surge_wakes_it_is_told_what_to_write() -> None:
    @dataclass(frozen=True)
    class Silent:
        period_s: float = 1.0

    with pytest.raises(AssertionError, match="Silent has no wakes_on_surge: write `wakes_on_surge"):
        clauses.is_frozen_with_sound_parameters(Silent())  # type: ignore[arg-type]


def test_default_limits_of_another_type_are_refused() -> None:
    class Wrong:
        default_limits: ClassVar[Any] = {"max_executors": 4}

    with pytest.raises(AssertionError, match="default_limits must be Limits, not"):
        clauses.has_default_limits(Wrong())  # type: ignore[arg-type]


def documented(parameters: str) -> Policy:
    """A policy with the fields `rate_rps` and `period_s` and these in its docstring."""

    @dataclass(frozen=True)
    class Documented:
        rate_rps: float = 1.0
        period_s: float = 10.0
        default_limits: ClassVar[Limits] = Limits()
        wakes_on_surge: ClassVar[bool] = False

        def decide(self, snapshot: Snapshot, knowledge: Knowledge) -> Decision:
            return say(1)

    Documented.__doc__ = f"""A rule.

    Parameters
    ----------
{parameters}

    Examples
    --------
    not_a_parameter
    """
    return Documented()


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ("    period_s\n        Seconds.", "does not document the parameter 'rate_rps'"),
        ("    rate_rps, period_s, rate\n        Both.", "documents 'rate', which is no parameter"),
        (
            "    rate_rps\n        A.\n    period_s\n        B.\n    old\n        C.",
            "documents 'old'",
        ),
    ],
    ids=["a field is missing", "a name too many", "a parameter that is gone"],
)
def test_the_docstring_and_the_fields_must_agree(parameters: str, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        clauses.documents_its_parameters(documented(parameters))


def test_parameters_may_share_a_line() -> None:
    clauses.documents_its_parameters(documented("    rate_rps, period_s\n        Both."))


@pytest.mark.parametrize(
    ("module", "fits"),
    [
        ("penstock.policies.halver", True),
        ("penstock.policies.folder.halver", True),
        ("penstock.policies.halving", False),
        ("penstock.policies.halver.rule", False),
        ("elsewhere.halver", False),
    ],
)
def test_a_policy_of_the_table_has_the_file_of_its_name(
    module: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = policy_of(takes_none_for_zero)
    monkeypatch.setattr(type(policy), "__module__", module)
    clauses.has_the_file_that_its_name_promises(policy)  # not in the table: anywhere
    monkeypatch.setitem(POLICIES, "halver", type(policy))
    if fits:
        clauses.has_the_file_that_its_name_promises(policy)
    else:
        with pytest.raises(AssertionError, match=rf"calls it 'halver', but its module is {module}"):
            clauses.has_the_file_that_its_name_promises(policy)


def test_a_memory_that_grows_slowly_or_slowly_is_still_found() -> None:
    def grows_slowly(_snapshot: Snapshot, knowledge: Knowledge) -> Decision:
        known = knowledge.recall(Past).rates
        turn = len(knowledge.history)
        return say(3, Past((*known, 1.0) if turn % 4 == 0 else known))

    with pytest.raises(AssertionError, match="memory grew from"):
        clauses.keeps_a_bounded_memory(policy_of(grows_slowly))


def test_a_sound_policy_passes_every_clause_in_its_order() -> None:
    names = []
    for check in yield_checks(Static()):
        check()
        names.append(check.__name__)
    assert names == [clause.__name__ for clause in CLAUSES]


def test_the_made_up_job_is_the_same_every_time_and_puts_both_sides_to_the_test() -> None:
    for shape in SHAPES:
        assert made_up_snapshot(shape, 7, 1000.0, 4) == made_up_snapshot(shape, 7, 1000.0, 4)
        load = [
            made_up_snapshot(shape, turn, 1000.0, 4).executors[0].busy_fraction
            for turn in range(100)
        ]
        assert min(fraction or 0.0 for fraction in load) == 0.0
        assert max(fraction or 0.0 for fraction in load) == 1.0


def test_a_policy_in_the_made_up_job_grows_and_shrinks() -> None:
    targets = [
        turn.step.decision.target_executors
        for turn in run(Thresholds(filter="pure"), "continuous", 100)
    ]
    assert max(targets) > 8
    assert targets[-1] < 4
