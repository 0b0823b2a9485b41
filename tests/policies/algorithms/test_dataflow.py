"""True rates and the walk from the sources."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ModelError
from penstock.core.model import Decision, Fleet, OperatorSample, Snapshot
from penstock.policies.algorithms.dataflow import (
    OperatorDemands,
    TrueRates,
    demands,
    measure,
    topological_order,
    true_rates,
    with_margin,
)


def chain_of(*rates: tuple[float, float]) -> list[TrueRates]:
    """Operators one after the other: (true processing, true output) with one instance each."""
    names = ["topic", *(f"op{number}" for number in range(len(rates)))]
    return [
        TrueRates(names[i + 1], (names[i],), 1.0, processing, output)
        for i, (processing, output) in enumerate(rates)
    ]


def seen(
    *operators: OperatorSample,
    at_s: float = 0.0,
    executors: int = 2,
    cores: int = 1,
    arrival_rps: float | None = 900.0,
    trigger_interval_s: float | None = None,
) -> Snapshot:
    return Snapshot(
        at_s,
        Fleet(executors, executors, executors, cores),
        trigger_interval_s=trigger_interval_s,
        arrival_rps=arrival_rps,
        operators=operators,
    )


def flow_of(snapshot: Snapshot, *earlier: Snapshot) -> OperatorDemands:
    flow = measure(snapshot, (*earlier, snapshot))
    assert isinstance(flow, OperatorDemands), flow
    return flow


def test_a_diamond_comes_in_an_order_in_which_nothing_waits_for_what_follows() -> None:
    upstream = {"sink": ["left", "right"], "left": ["source"], "right": ["source"], "source": []}
    order = topological_order(upstream)
    assert sorted(order) == sorted(upstream)
    assert all(
        order.index(feed) < order.index(name) for name in upstream for feed in upstream[name]
    )


def test_a_cycle_and_an_unknown_name_are_refused_with_one_sentence() -> None:
    with pytest.raises(ModelError, match="the dataflow has a cycle: "):
        topological_order({"a": ["b"], "b": ["c"], "c": ["a"]})
    with pytest.raises(ModelError, match="'b' reads from 'x', which is not in the dataflow"):
        topological_order({"a": [], "b": ["a", "x"]})
    with pytest.raises(ModelError, match="bear the same name"):
        demands([*chain_of((1.0, 1.0)), *chain_of((1.0, 1.0))], {"topic": 1.0})


def test_what_an_operator_emits_is_the_target_of_the_next_and_is_not_rounded() -> None:
    # 100/s at 40/s per instance: 2.5 instances, which emit 2.5 x 20 = 50/s.
    found = demands(chain_of((40.0, 20.0), (10.0, 0.0)), {"topic": 100.0})
    assert found["op0"].instances == 2.5
    assert found["op1"].target_rps == 50.0
    assert (with_margin(found["op0"].instances, 1.0), found["op1"].instances) == (3, 5.0)


def test_a_join_gets_what_both_of_its_sources_emit() -> None:
    join = TrueRates("join", ("left", "right"), 2.0, 100.0, 10.0)
    found = demands([join], {"left": 100.0, "right": 150.0})
    assert (found["join"].target_rps, found["join"].instances) == (250.0, 5.0)


def test_an_operator_of_unknown_rate_needs_nothing_or_no_end() -> None:
    idle = chain_of((0.0, 0.0))
    assert demands(idle, {"topic": 0.0})["op0"].instances == 0.0
    assert demands(idle, {"topic": 1.0})["op0"].instances == inf


@given(
    st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1e6)), min_size=1, max_size=6),
    st.floats(0, 1e6),
    st.floats(1, 10),
)
def test_needs_are_proportional_to_what_arrives(
    rates: list[tuple[float, float]], arrival_rps: float, factor: float
) -> None:
    once = demands(chain_of(*rates), {"topic": arrival_rps})
    more = demands(chain_of(*rates), {"topic": arrival_rps * factor})
    for name, demand in once.items():
        assert more[name].instances == pytest.approx(demand.instances * factor)


def test_on_shared_slots_the_slowest_operator_sets_the_fleet() -> None:
    # 2 executors: reading could do 600/0.5 = 1200/s, joining 600/s; 900/s arrive.
    flow = flow_of(
        seen(
            OperatorSample("read", (), 600.0, 600.0, 0.5),
            OperatorSample("join", ("read",), 600.0, None, 1.0),
        )
    )
    assert flow.demands["read"].instances == 1.5
    assert (flow.executors, flow.slowest) == (3.0, "join")


def test_stages_that_take_turns_add_up() -> None:
    # 4 executors of 2 cores: the stages use 0.3 and 0.5 of all slot time for 600/s, so all of
    # it would do 750/s, and 900/s need 4.8 executors.
    flow = flow_of(
        seen(
            OperatorSample("scan", (), 600.0, 60.0, 0.3, tasks=200),
            OperatorSample("count", ("scan",), 60.0, 1.0, 0.5, tasks=200),
            executors=4,
            cores=2,
            trigger_interval_s=10.0,
        )
    )
    assert flow.takes_turns
    assert flow.executors == pytest.approx(4 * 0.8 * 900 / 600)


def test_an_executor_with_two_cores_is_two_slots() -> None:
    flow = flow_of(seen(OperatorSample("read", (), 600.0, None, 1.0), cores=2))
    # Four slots do 600/s: 900/s need six slots, three executors.
    assert (flow.demands["read"].instances, flow.executors) == (6.0, 3.0)


def test_a_rescale_and_a_restart_inside_the_window_do_not_bend_the_true_rate() -> None:
    # 100/s per instance, seen on two executors, then nothing, then on eight.
    before = seen(OperatorSample("op", (), 200.0, None, 1.0), executors=2)
    during = seen(OperatorSample("op", (), 0.0, None, 0.0), executors=8)
    after = seen(OperatorSample("op", (), 400.0, None, 0.5), executors=8)
    rates, missing = true_rates((before, during, after), takes_turns=False)
    assert missing == ()
    assert rates[0].processing_rps == pytest.approx(800.0)


def test_two_sources_share_the_arrivals_as_they_read() -> None:
    flow = flow_of(
        seen(
            OperatorSample("bids", (), 300.0, None, 0.5),
            OperatorSample("people", (), 100.0, None, 0.5),
            arrival_rps=800.0,
        )
    )
    assert flow.demands["bids"].target_rps == 600.0
    assert flow.demands["people"].target_rps == 200.0


def test_what_was_seen_earlier_in_the_window_fills_in_for_a_look_between_two_batches() -> None:
    batch = seen(OperatorSample("scan", (), 600.0, None, 0.5), trigger_interval_s=60.0)
    between = seen(at_s=20.0, trigger_interval_s=60.0)
    assert flow_of(between, batch).executors == pytest.approx(1.5)


def held(snapshot: Snapshot) -> tuple[str, str]:
    decision = measure(snapshot, [snapshot])
    assert isinstance(decision, Decision)
    assert decision.target_executors == snapshot.fleet.target
    return decision.reasons[0].code, decision.reasons[0].text


@pytest.mark.parametrize(
    ("snapshot", "name"),
    [
        (seen(), "operators"),
        (seen(OperatorSample("a", (), 1.0, None, 0.5), arrival_rps=None), "arrival_rps"),
        (seen(OperatorSample("a", (), 1.0)), "input_rps or busy_fraction of a"),
        (
            seen(
                OperatorSample("a", (), 1.0, None, 0.5), OperatorSample("b", ("a",), 1.0, None, 1.0)
            ),
            "output_rps of a",
        ),
        (seen(OperatorSample("a", (), 0.0, None, 0.0)), "true rate of a"),
    ],
)
def test_what_is_not_measured_is_named(snapshot: Snapshot, name: str) -> None:
    assert held(snapshot) == ("not_measured", f"holding 2 executors: {name} not measured")


def test_a_broken_graph_holds_and_says_so() -> None:
    loop = seen(
        OperatorSample("a", ("b",), 1.0, 1.0, 0.5), OperatorSample("b", ("a",), 1.0, 1.0, 0.5)
    )
    code, text = held(loop)
    assert (code, "cycle" in text) == ("broken_dataflow", True)
    lost = seen(OperatorSample("a", ("gone",), 1.0, 1.0, 0.5))
    assert held(lost)[0] == "broken_dataflow"


def test_a_margin_rounds_up() -> None:
    assert [with_margin(n, 1.25) for n in range(1, 8)] == [2, 3, 4, 5, 7, 8, 9]
    assert with_margin(100, 2.000001) == 201
