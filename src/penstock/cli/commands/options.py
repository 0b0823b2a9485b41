"""Options that several commands share, and how their text becomes values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.core.errors import ConfigError
from penstock.core.model import Limits
from penstock.settings.goal import Goal
from penstock.settings.notation import quantity, split_list
from penstock.settings.toml import Settings, load
from penstock.simulation.faults import Fault, read_fault

Listed = Annotated[list[str] | None, Parameter(consume_multiple=True)]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """How a simulated run is set up.

    Parameters
    ----------
    duration
        How long, e.g. 6h; a trace runs for its own length, other loads for 6h.
    start
        Executors at the start; by default a fleet that carries the first minute.
    min
        Fewest executors; 1 without a penstock.toml that says otherwise.
    max
        Most executors; 16 without a penstock.toml that says otherwise.
    slo
        A record that waits longer is late; 10s.
    warmup
        Run, but not scored; 10min.
    fault
        What goes wrong, e.g. executor_lost:at=1h or sensor_late:late=30s.
    config
        A penstock.toml for limits and goal.
    """

    duration: str | None = None
    start: int | None = None
    min: int | None = None
    max: int | None = None
    slo: str | None = None
    warmup: str | None = None
    fault: Listed = None
    config: Path | None = None

    def settings(self) -> Settings | None:
        return None if self.config is None else load(self.config)

    def bounds(self, settings: Settings | None = None) -> dict[str, Any]:
        """The bounds of the fleet, the same for every policy: else it is them that is compared."""
        limits = Limits() if settings is None else settings.limits
        least = limits.min_executors if self.min is None else self.min
        most = limits.max_executors if self.max is None else self.max
        if self.start is not None and least <= most and not least <= self.start <= most:
            raise ConfigError(f"--start must be between {least} and {most}, not {self.start}")
        return {"min_executors": least, "max_executors": most}

    def goal(self, settings: Settings | None) -> Goal:
        goal = Goal() if settings is None else settings.goal
        if self.slo is not None:
            goal = msgspec.structs.replace(goal, slo_s=quantity(self.slo, "--slo"))
        if self.warmup is not None:
            goal = msgspec.structs.replace(goal, warmup_s=quantity(self.warmup, "--warmup"))
        return goal

    def duration_s(self) -> float | None:
        if self.duration is None:
            return None
        seconds = quantity(self.duration, "--duration")
        if seconds < 1.0:
            raise ConfigError(f"--duration must be at least 1s, not '{self.duration}'")
        return seconds

    def faults(self) -> tuple[Fault, ...]:
        return tuple(read_fault(text) for text in listed(self.fault or ()))


def listed(texts: Sequence[str]) -> list[str]:
    """Options may be repeated, given in a row, or separated by commas.

    >>> listed(["hpa,ds2:overprovisioning=0.3", "static"])
    ['hpa', 'ds2:overprovisioning=0.3', 'static']
    """
    return [notation for text in texts for notation in split_list(text)]


def seed_numbers(texts: Sequence[str]) -> list[int]:
    """Seeds, repeated, listed, or as a range.

    >>> seed_numbers(["1", "5..7", "9,10"])
    [1, 5, 6, 7, 9, 10]
    """
    seeds: list[int] = []
    for text in (piece.strip() for piece in ",".join(texts).split(",")):
        first, dots, last = text.partition("..")
        if not first.isdigit() or (dots and not (last.isdigit() and int(first) <= int(last))):
            raise ConfigError(f"--seeds must be whole numbers or ranges like 1..5, not '{text}'")
        seeds.extend(range(int(first), int(last) + 1) if dots else [int(first)])
    return list(dict.fromkeys(seeds))
