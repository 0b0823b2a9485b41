"""What a change of the fleet costs a dataflow, learned from the minute after."""

from __future__ import annotations

import pytest

from penstock.learning.capacity import Track
from penstock.learning.rescaling import learn_hold_up
from penstock.model import Fleet, Snapshot

#: 100 us of a core for each record: four executors of one core carry about 39 k/s.
KNOWN = Track(work_s=1e-4, fixed_s=0.0)
ASKED_S = 100.0


def minute(delays_s: dict[float, float], loads_rps: dict[float, float]) -> list[Snapshot]:
    """From 90 to 160 s, every ten; the fleet was asked to grow from 2 to 4 at 100 s."""
    return [
        Snapshot(
            at_s, Fleet(2 if at_s <= ASKED_S else 4, 4, 2 if at_s < 120.0 else 4),
            arrival_rps=loads_rps.get(at_s, 18e3), delay_s=delays_s.get(at_s, 0.0),
        )
        for at_s in (90.0, 100.0, 110.0, 120.0, 130.0, 140.0, 150.0, 160.0)
    ]  # fmt: skip


def test_the_worst_delay_after_it_is_what_it_cost() -> None:
    # 6 + 0.3 x (16 - 6)
    recent = minute({120.0: 16.0, 130.0: 9.0}, {})
    assert learn_hold_up(6.0, KNOWN, recent, ASKED_S) == pytest.approx(9.0)


def test_it_is_looked_at_once_a_minute_after() -> None:
    recent = minute({120.0: 16.0}, {})
    assert learn_hold_up(6.0, KNOWN, recent[:-1], ASKED_S) == 6.0


def test_a_flood_that_no_fleet_carries_is_not_its_fault() -> None:
    recent = minute({120.0: 90.0, 150.0: 120.0}, {100.0: 900e3})
    assert learn_hold_up(6.0, KNOWN, recent, ASKED_S) == 6.0
