"""A sensor that is blind or late, on any engine."""

from __future__ import annotations

import pytest

from penstock.core.errors import SensorError
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.engine import Engine
from penstock.simulation.engines.sensors import Impaired, impaired
from penstock.simulation.faults import Fault, SensorBlind, SensorLate

RATES = [1000.0 + second for second in range(600)]


def healthy() -> Engine:
    return ContinuousJob(measurement_noise=0.0).start(RATES, executors=2, seed=1)


def faulty(*faults: Fault) -> Engine:
    return Impaired(healthy(), faults)


def test_a_blind_sensor_raises_while_it_lasts() -> None:
    engine = faulty(SensorBlind(at_s=100.0, duration_s=50.0))
    assert engine.read(90.0).at_s == 90.0
    for at_s in (100.0, 149.0):
        with pytest.raises(SensorError, match="blind since second 100"):
            engine.read(at_s)
    # Back again, it shows the mean over all the time in which nobody looked.
    assert engine.read(150.0).arrival_rps == pytest.approx(1000.0 + (90 + 149) / 2)


def test_a_late_sensor_shows_the_past_with_its_own_time() -> None:
    engine, truth = faulty(SensorLate(late_s=30.0)), healthy()
    past = {at_s: truth.read(float(at_s)) for at_s in range(0, 300, 15)}
    for at_s in range(0, 300, 15):
        if at_s < 30:
            with pytest.raises(SensorError, match="30 s late and has nothing that old"):
                engine.read(float(at_s))
        else:
            assert engine.read(float(at_s)) == past[at_s - 30]


def test_lateness_between_two_reads_shows_the_older_one() -> None:
    engine = faulty(SensorLate(late_s=20.0))
    for at_s in (0.0, 15.0):
        with pytest.raises(SensorError):
            engine.read(at_s)
    assert engine.read(30.0).at_s == 0.0
    assert engine.read(45.0).at_s == 15.0


def test_a_sensor_that_is_late_for_a_while_catches_up() -> None:
    engine = faulty(SensorLate(at_s=60.0, duration_s=60.0, late_s=30.0))
    shown = [engine.read(float(at_s)).at_s for at_s in range(0, 151, 30)]
    assert shown == [0.0, 30.0, 30.0, 60.0, 120.0, 150.0]


def test_the_actuator_behind_a_faulty_sensor_works() -> None:
    engine = faulty(SensorBlind(at_s=0.0, duration_s=600.0))
    assert engine.apply(5, 10.0).accepted
    assert [level.executors for level in engine.finish().targets] == [2, 5]


def test_an_engine_without_faults_of_the_sensor_is_left_alone() -> None:
    engine = healthy()
    assert impaired(engine, []) is engine
    assert isinstance(impaired(engine, [SensorLate()]), Impaired)
