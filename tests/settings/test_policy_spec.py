"""One reader of policy texts, and texts that it reads back to the same policy."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given

from penstock.core.errors import ConfigError
from penstock.policies import POLICIES
from penstock.policies.kubernetes.hpa import Hpa
from penstock.policies.kubernetes.pacing import Behavior, ScalingPolicy, ScalingRules
from penstock.policies.phoebe import Phoebe
from penstock.policies.static import Static
from penstock.settings.goal import Goal
from penstock.settings.policy_spec import PolicySpec, policy_text, read_policy_spec, spec_of
from tests.settings.random_policies import random_policies


def test_parameters_and_limits_stand_in_one_text() -> None:
    spec = read_policy_spec("ds2:cooldown=60s,overprovisioning=0.3", {"max_executors": 8})
    assert (spec.limits.cooldown_s, spec.limits.max_executors) == (60.0, 8)
    assert spec.given == {"cooldown_s", "overprovisioning"}


def test_what_the_text_sets_wins_over_bounds_and_goal() -> None:
    text = "penstock:slo=5s,max_executors=4"
    spec = read_policy_spec(text, {"max_executors": 8}, Goal(slo_s=30.0, late_price=3.0))
    policy: Any = spec.policy
    assert (policy.slo_s, policy.late_price, spec.limits.max_executors) == (5.0, 3.0, 4)


def test_whether_the_slo_was_given_is_known_from_the_keys() -> None:
    text = "penstock:move_price=0.5"
    assert read_policy_spec(text, goal=Goal(slo_s=30.0)).policy.slo_s == 30.0  # type: ignore[attr-defined]
    positional = read_policy_spec("static:6", goal=Goal())
    assert positional.given == {"executors"}


@given(random_policies())
def test_every_policy_of_the_table_has_a_text_that_reads_back_to_it(policy: Any) -> None:
    assert read_policy_spec(policy_text(policy)).policy == policy


def test_nested_parameters_are_json_in_the_text() -> None:
    profile = Phoebe(capacity=((1, 500.25), (2, 1e3)), latency=((1, 400.0, 0.5),))
    text = policy_text(profile)
    assert text == "phoebe:capacity=[[1,500.25],[2,1000.0]],latency=[[1,400.0,0.5]]"
    assert read_policy_spec(text).policy == profile
    rules = ScalingRules(60.0, "Min", (ScalingPolicy("Pods", 2),))
    policy = Hpa(behavior=Behavior(scale_down=rules))
    assert read_policy_spec(policy_text(policy) + ",cooldown=9s").policy == policy
    with pytest.raises(ConfigError, match=r"hpa: behavior must be JSON of its type, not '\{1\}'"):
        read_policy_spec("hpa:behavior={1}")


def test_a_policy_of_ones_own_is_named_by_its_class() -> None:
    @dataclasses.dataclass(frozen=True)
    class Mine(Static):
        """Not in the table, though it derives from a policy that is."""

    spec = PolicySpec.of(Mine())
    assert spec.label == "Mine"
    with pytest.raises(ConfigError, match="unknown policy 'Mine'"):
        read_policy_spec(spec.label)


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (42, "and 42 has no decide, period_s, default_limits, wakes_on_surge"),
        (None, "and None has no decide"),
        (Static, r"pass Static\(\), not the class"),
    ],
)
def test_what_is_no_policy_is_refused_in_one_sentence(policy: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        spec_of(policy)


def test_an_object_keeps_its_own_slo_and_gets_the_bounds() -> None:
    spec = spec_of(Static(6), {"max_executors": 4}, Goal(slo_s=30.0))
    assert (spec.label, spec.limits.max_executors) == ("static:executors=6", 4)


def test_bounds_that_exclude_each_other_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^hpa: max_executors must be at least .* \(9\).*not 8"):
        read_policy_spec("hpa:min_executors=9", {"max_executors": 8})


def test_the_random_policies_reach_every_field_of_the_table() -> None:
    """A parameter of a new type must be added to the strategies, or replay is not tested on it."""
    known = (float, int, bool, str)
    for kind in POLICIES.values():
        for name, hint in get_type_hints(kind).items():
            if name in {field.name for field in dataclasses.fields(kind)}:  # type: ignore[arg-type]
                plain = [each for each in (get_args(hint) or (hint,)) if each is not type(None)]
                assert get_origin(hint) in (tuple, Literal) or all(
                    each in known or each is Behavior for each in plain
                ), (kind, name, hint)
