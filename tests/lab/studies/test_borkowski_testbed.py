"""The testbed of Borkowski et al. on paper: images dealt in turn, a queue on every VM."""

from __future__ import annotations

import pytest

from penstock.lab.studies.borkowski_testbed import Cloud, CloudRun
from penstock.simulation.engines.fleet import Startup

TEN_SECONDS = Startup(10.0, 10.0)


def started(rates_rps: list[float], executors: int, transfer_s: float = 0.0) -> CloudRun:
    """A run on a testbed without noise, apart from images and VMs that differ a little."""
    quiet = Cloud(
        work_s=0.2, gauge_noise=0.0, swing=0.0, transfer_s=transfer_s, startup=TEN_SECONDS
    )
    return quiet.start(rates_rps, executors=executors, seed=1)


def cpus(run: CloudRun, now_s: float) -> list[float]:
    return [one.cpu_fraction or 0.0 for one in run.read(now_s).executors]


def test_a_fleet_that_keeps_up_lets_no_image_wait() -> None:
    run = started([10.0] * 100, executors=4)
    # 10 images/s of 0.2 s on 4 VMs: half busy, on top of 3 % for nothing.
    assert sum(cpus(run, 100.0)) / 4 == pytest.approx(0.03 + 0.97 * 0.5, abs=0.03)
    assert len(run.image_s) == 1000
    assert sum(run.image_s) / 1000 == pytest.approx(0.2, rel=0.1)
    assert run.vm_s == pytest.approx(400.0)


def test_who_joins_takes_nothing_off_the_queue_of_who_was_there() -> None:
    run = started([20.0] * 60, executors=1)
    run.apply(8, 0.0)
    run.read(20.0)
    old, *new = cpus(run, 50.0)
    # The old one was dealt 200 images in the first 10 s, 40 s of work, and an eighth after that.
    assert old == pytest.approx(1.0)
    assert sum(new) / 7 == pytest.approx(0.03 + 0.97 * 0.5, abs=0.05)
    assert max(run.image_s) == pytest.approx(30.0, abs=2.0)


def test_who_leaves_works_off_its_queue_and_takes_no_more() -> None:
    run = started([20.0] * 60, executors=2)
    run.read(30.0)
    run.apply(1, 30.0)
    assert len(run.read(31.0).executors) == 1
    run.finish()
    # 600 images so far, 300 on each, 60 s of work: 30 s of that are left when one VM leaves.
    assert run.vm_s == pytest.approx(30.0 * 2 + 30.0 + 30.0, rel=0.1)


def test_moving_state_is_work_for_all() -> None:
    run = started([0.0] * 60, executors=3, transfer_s=1.0)
    run.apply(2, 10.0)
    run.read(10.0)
    assert cpus(run, 11.0) == pytest.approx([1.0, 1.0])
    assert cpus(run, 12.0) == pytest.approx([0.03, 0.03])


def test_what_is_asked_for_again_changes_nothing() -> None:
    run = started([1.0] * 10, executors=2)
    assert run.apply(2, 5.0).text == "they were asked for already"
    outcome = run.finish()
    assert (len(outcome.targets), outcome.arrivals.records[-1]) == (1, 10.0)
    assert outcome.departures.at_s == sorted(outcome.departures.at_s)


def test_the_rate_is_that_of_the_second_before_the_reading() -> None:
    run = started([10.0, 30.0], executors=8)
    assert [run.read(at_s).arrival_rps for at_s in (0.5, 1.0, 1.5, 2.0)] == [10.0, 10.0, 30.0, 30.0]
