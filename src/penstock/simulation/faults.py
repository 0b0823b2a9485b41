"""What can go wrong in a run, as data: each fault has an instant and says what it does then.

The engines read these; faults of the sensor and of the source, which are the same on every
engine, are carried out by the functions below.
"""

from collections.abc import Sequence
from math import inf
from typing import TypeAlias, get_args

from msgspec import Struct

from penstock.core.errors import ConfigError, unknown
from penstock.core.phrases import duration
from penstock.settings.notation import build, describe, parse


class ExecutorLost(Struct, frozen=True, tag="executor_lost", forbid_unknown_fields=True):
    """Some executors die at once; the cluster manager starts others in their place."""

    at_s: float
    count: int = 1


class LastingFault(Struct, frozen=True, forbid_unknown_fields=True):
    """A fault that is under way from an instant on, for ever unless it says how long."""

    at_s: float
    duration_s: float = inf


class SlowExecutor(LastingFault, frozen=True, tag="slow_executor"):
    """The oldest executor works at a fraction of its speed for a while."""

    speed_fraction: float = 0.5


class FailedStart(LastingFault, frozen=True, tag="failed_start"):
    """Executors asked for in this span never come up, with that probability.

    Each is paid for during its start-up, then found dead and asked for again.
    """

    probability: float = 1.0


class SlowStart(LastingFault, frozen=True, tag="slow_start"):
    """Executors asked for in this span take longer to come up, by that factor."""

    factor: float = 5.0


class CapacityDrop(LastingFault, frozen=True, tag="capacity_drop"):
    """From here on every record costs more: capacity falls by that fraction."""

    fraction: float = 0.3


class SkewSetsIn(LastingFault, frozen=True, tag="skew"):
    """From here on the hottest key holds that share of all records."""

    hot_fraction: float = 0.2


class SourceOutage(LastingFault, frozen=True, tag="source_outage"):
    """The source cannot be read, though it keeps filling: no input, and its backlog is unseen."""

    duration_s: float = 600.0


class SourceSilence(LastingFault, frozen=True, tag="source_silence"):
    """Nothing arrives for a while, then all that was held back arrives within one second."""

    duration_s: float = 600.0


class SensorBlind(LastingFault, frozen=True, tag="sensor_blind"):
    """The sensor fails for a while."""

    duration_s: float = 300.0


class SensorLate(LastingFault, frozen=True, tag="sensor_late"):
    """The sensor shows the job as it was some seconds ago."""

    at_s: float = 0.0
    late_s: float = 30.0


Fault = (
    ExecutorLost | SlowExecutor | FailedStart | SlowStart | CapacityDrop | SkewSetsIn
    | SourceOutage | SourceSilence | SensorBlind | SensorLate
)  # fmt: skip
Faults: TypeAlias = Sequence[Fault]

#: Every fault by the name that the command line knows it by.
FAULTS: dict[str, type[Fault]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Fault)}


def faults_outside(faults: Faults, duration_s: float) -> list[str]:
    """One sentence for each fault that would begin only after the end of the run.

    >>> faults_outside([ExecutorLost(at_s=18_000.0), SensorLate()], duration_s=1_200.0)
    ['executor_lost:at=5h never happens: the run ends after 20 min']
    """
    end = duration(duration_s)
    outside = [fault for fault in faults if fault.at_s >= duration_s]
    names = [describe(fault, str(fault.__struct_config__.tag)) for fault in outside]
    return [f"{name} never happens: the run ends after {end}" for name in names]


def read_fault(text: str) -> Fault:
    """A fault in the one-line notation.

    >>> read_fault("executor_lost:at=1h,count=2")
    ExecutorLost(at_s=3600.0, count=2)
    """
    notation = parse(text)
    kind = FAULTS.get(notation.name)
    if kind is None:
        raise unknown("fault", notation.name, FAULTS)
    if notation.positional:
        raise ConfigError(f"{notation.name}: expected key=value, not '{notation.positional[0]}'")
    return build(kind, notation.options, notation.name)


def with_silence(rates_rps: Sequence[float], faults: Faults) -> list[float]:
    """The rates as the source sees them: silences cut out, their records in the second after.

    >>> with_silence([5.0, 5.0, 5.0, 5.0], [SourceSilence(at_s=1.0, duration_s=2.0)])
    [5.0, 0.0, 0.0, 15.0]
    """
    rates = list(rates_rps)
    for fault in faults:
        if isinstance(fault, SourceSilence):
            first = min(len(rates), int(fault.at_s))
            last = min(len(rates), int(fault.at_s + fault.duration_s))
            held = sum(rates[first:last])
            rates[first:last] = [0.0] * (last - first)
            if last < len(rates):
                rates[last] += held
    return rates
