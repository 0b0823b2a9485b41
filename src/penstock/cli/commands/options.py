"""Options that several commands share: each has one name, one help text and one reader here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from penstock.cli.views.output import note
from penstock.core.errors import ConfigError
from penstock.policies import DEFAULT_POLICY
from penstock.settings.notation import quantity, split_list, written
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.toml import FILE_NAME, Settings, load
from penstock.settings.toml import parse as parse_toml
from penstock.simulation.faults import Fault, read_fault

#: A longer run, a larger simulated fleet or more seeds would take hours or gigabytes.
MAX_DURATION_S = 31 * 86400.0
MAX_FLEET = 1000
MAX_SEEDS = 10_000
MAX_PROCESSES = 1024
MAX_WHOLE = 2**63 - 1


def whole(least: int = 0, most: int = MAX_WHOLE) -> Parameter:
    """An option that takes a whole number between two bounds, both included."""

    def read(_kind: type, tokens: Sequence[Token]) -> int:
        name, text = tokens[0].keyword or "", tokens[0].value
        if not re.fullmatch(r"[+-]?\d{1,30}", text) or not least <= int(text) <= most:
            allowed = f"of at least {least}" if most == MAX_WHOLE else f"from {least} to {most}"
            raise ConfigError(f"{name} must be a whole number {allowed}, not '{text}'")
        return int(text)

    return Parameter(converter=read, allow_leading_hyphen=True, metavar="N")


def amount(
    least: float = 0.0, most: float = inf, *, zero: bool = True, unit: str = "TIME"
) -> Parameter:
    """An option that takes a number, with a unit where it is a time span."""

    def read(_kind: type, tokens: Sequence[Token]) -> float:
        name, text = tokens[0].keyword or "", tokens[0].value
        number = quantity(text, name)
        if number < least or (number == 0.0 and not zero):
            bound = f"at least {written(least, seconds=True)}" if least else "greater than 0"
            raise ConfigError(f"{name} must be {bound}, not '{text}'")
        if number > most:
            raise ConfigError(f"{name} must be at most {written(most, seconds=True)}, not '{text}'")
        return number

    return Parameter(converter=read, allow_leading_hyphen=True, metavar=unit)


def _help(text: str) -> Parameter:
    return Parameter(help=text)


_POLICY = "name:key=value,...; `penstock policies` lists them"
WORKLOAD = "a shape, a trace, or a sum, product or sequence of them"
ENGINE = "micro-batch (like Spark) or continuous (like Flink)"

Listed = Annotated[list[str] | None, Parameter(consume_multiple=True)]
PolicyText = Annotated[str | None, _help(f"A policy, as {_POLICY}. [default: {DEFAULT_POLICY}]")]
PolicyTexts = Annotated[Listed, _help(f"Policies, each as {_POLICY}. [default: all]")]
Seed = Annotated[int, whole(), _help("The same seed gives the same run.")]
Processes = Annotated[
    int | None, whole(1, MAX_PROCESSES), _help("Runs at once on this machine; one per core.")
]
Master = Annotated[str | None, _help("The Spark cluster, such as spark://host:7077.")]
Slo = Annotated[
    float | None, amount(zero=False), _help("A record that waits longer is late. [default: 10s]")
]
Force = Annotated[bool, _help("Replace a file that exists.")]


@Parameter(name="*")
@dataclass(frozen=True)
class FleetOptions:
    """The settings file, and the bounds of the fleet that replace its own."""

    min: Annotated[int | None, whole(), _help("Fewest executors. [default: 1]")] = None
    max: Annotated[int | None, whole(1), _help("Most executors. [default: 16]")] = None
    config: Annotated[
        Path | None, _help(f"Settings; ./{FILE_NAME} without it, if there is one.")
    ] = None

    def settings(self, policy: str | None = None) -> Settings:
        """The settings of the file or the defaults; what the command line says replaces them."""
        path = self.config
        if path is None and Path(FILE_NAME).is_file():
            path = Path(FILE_NAME)
            note(f"settings from {FILE_NAME}")
        given = self._given()
        found = parse_toml("", "options", given) if path is None else load(path, given)
        if policy is None:
            return found
        bounds = bounds_of(found)
        return replace(found, spec=read_policy_spec(policy, bounds, found.goal))

    def _given(self) -> dict[str, dict[str, Any]]:
        """What the command line sets, by table and key of the settings."""
        limits = {"min_executors": self.min, "max_executors": self.max}
        return {"limits": {key: value for key, value in limits.items() if value is not None}}


@Parameter(name="*")
@dataclass(frozen=True)
class ScaleOptions(FleetOptions):
    """The bounds of the fleet and the SLO."""

    slo: Slo = None

    def _given(self) -> dict[str, dict[str, Any]]:
        return super()._given() | {"goal": {} if self.slo is None else {"slo_s": self.slo}}


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions(ScaleOptions):
    """How a simulated run is set up."""

    duration: Annotated[
        float | None,
        amount(1.0, MAX_DURATION_S),
        _help("How long, such as 6h. [default: the length of the trace, 6h for other loads]"),
    ] = None
    start: Annotated[
        int | None,
        whole(),
        _help("Executors at the start. [default: enough for the first minute]"),
    ] = None
    warmup: Annotated[
        float | None, amount(), _help("Time at the start that is not scored. [default: 10min]")
    ] = None
    fault: Annotated[
        Listed, _help("What goes wrong, such as executor_lost:at=1h or sensor_late:late=30s.")
    ] = None

    def settings(self, policy: str | None = None) -> Settings:
        found = super().settings(policy)
        least, most = found.limits.min_executors, found.limits.max_executors
        if most > MAX_FLEET:
            raise ConfigError(f"a simulated fleet has at most {MAX_FLEET} executors, not {most}")
        if self.start is not None and not least <= self.start <= most:
            raise ConfigError(f"--start must be between {least} and {most}, not {self.start}")
        return found

    def _given(self) -> dict[str, dict[str, Any]]:
        given = super()._given()
        warmup = {} if self.warmup is None else {"warmup_s": self.warmup}
        return {**given, "goal": given["goal"] | warmup}

    def faults(self) -> tuple[Fault, ...]:
        return tuple(read_fault(text) for text in listed(self.fault or ()))


@Parameter(name="*")
@dataclass(frozen=True)
class GridOptions:
    """The loads, engines and seeds that every policy meets."""

    workload: Annotated[Listed, _help(f"Loads, each {WORKLOAD}. [default: sine]")] = None
    engine: Annotated[Listed, _help(f"{ENGINE}, or both. [default: micro-batch]")] = None
    seeds: Annotated[
        Listed, _help("Numbers or ranges, such as 1 2 3 or 1..5. [default: 1; tune: 1..6]")
    ] = None

    def workloads(self) -> list[str]:
        return listed(self.workload or ["sine"])

    def engines(self) -> list[str]:
        return listed(self.engine or ["micro-batch"])

    def seed_numbers(self, default: str = "1") -> list[int]:
        return seed_numbers(self.seeds or [default])


def bounds_of(settings: Settings) -> dict[str, Any]:
    """The bounds of the fleet, the same for every policy: else it is them that is compared."""
    limits = settings.limits
    return {"min_executors": limits.min_executors, "max_executors": limits.max_executors}


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
    seeds: dict[int, None] = {}
    for text in (piece.strip() for piece in ",".join(texts).split(",")):
        span = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text)
        if span is None or int(span[2] or span[1]) < int(span[1]):
            raise ConfigError(f"--seeds must be whole numbers or ranges like 1..5, not '{text}'")
        first, last = int(span[1]), int(span[2] or span[1])
        if len(seeds) + last - first >= MAX_SEEDS:
            raise ConfigError(f"--seeds must be at most {MAX_SEEDS} numbers, not '{text}'")
        seeds |= dict.fromkeys(range(first, last + 1))
    return list(seeds)


def seeds_text(seeds: Sequence[int]) -> str:
    """Seeds as they are written on the command line.

    >>> seeds_text([7]), seeds_text([1, 2, 3]), seeds_text([1, 5])
    ('seed 7', 'seeds 1..3', 'seeds 1, 5')
    """
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]}..{seeds[-1]}"
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
