"""Options that several commands share: each has one name, one help text and one reader here."""

import pkgutil
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from penstock.cli.output import note
from penstock.core.errors import ConfigError
from penstock.settings import spark_conf, toml
from penstock.settings.notation import quantity, split_list, written
from penstock.settings.policy_spec import DEFAULT_BOUNDS
from penstock.settings.toml import Settings
from penstock.simulation import MAX_DURATION_S
from penstock.simulation.faults import Fault, read_fault

#: A larger simulated fleet or more seeds would take hours or gigabytes.
MAX_FLEET = 1000
MAX_SEEDS = 10_000
MAX_PROCESSES = 1024
MAX_WHOLE = 2**63 - 1

#: What ``--help`` says of each option; that of one command is named ``command.option``.
TEXTS = tomllib.loads((pkgutil.get_data("penstock.cli", "options.toml") or b"").decode())


def about(option: str) -> Parameter:
    return Parameter(help=TEXTS[option])


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


Listed = Annotated[list[str] | None, Parameter(consume_multiple=(1, None))]
PolicyText = Annotated[str | None, about("policy")]
Processes = Annotated[int | None, whole(1, MAX_PROCESSES), about("processes")]
Master = Annotated[str | None, about("master")]
CpuShare = Annotated[float | None, amount(zero=False, unit="SHARE"), about("cpu_share")]
DashboardAt = Annotated[str | None, about("dashboard_at")]
Slo = Annotated[float | None, amount(zero=False)]

#: Options that stand for a setting: its table and key.
SETTINGS = {
    "min": ("limits", "min_executors"),
    "max": ("limits", "max_executors"),
    "slo": ("goal", "slo_s"),
    "warmup": ("goal", "warmup_s"),
}


@Parameter(name="*")
@dataclass(frozen=True)
class FleetOptions:
    """The settings file, and the bounds of the fleet that replace its own."""

    min: Annotated[int | None, whole(), about("min")] = None
    max: Annotated[int | None, whole(1), about("max")] = None
    config: Annotated[Path | None, about("config")] = None

    def settings(self, policy: str | None = None) -> Settings:
        """The settings of the file or the defaults; what the command line says replaces them."""
        layers = self.layers()
        if self.config is None and toml.FILE_NAME in layers:
            note(f"settings from {toml.FILE_NAME}")
        return toml.settle(layers, policy)

    def layers(
        self, conf: Mapping[str, str] | None = None, **given: dict[str, Any]
    ) -> dict[str, toml.Overrides]:
        """Where the settings come from, with those of a Spark configuration."""
        for option, (table, key) in SETTINGS.items():
            if (value := getattr(self, option, None)) is not None:
                given.setdefault(table, {})[key] = value
        return spark_conf.layers(conf or {}, self.config, given)


@Parameter(name="*")
@dataclass(frozen=True)
class ScaleOptions(FleetOptions):
    """The bounds of the fleet and the SLO."""

    slo: Annotated[Slo, about("slo")] = None


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions(ScaleOptions):
    """How a simulated run is set up."""

    duration: Annotated[float | None, amount(1.0, MAX_DURATION_S), about("duration")] = None
    start: Annotated[int | None, whole(), about("start")] = None
    warmup: Annotated[float | None, amount(), about("warmup")] = None
    fault: Annotated[Listed, about("fault")] = None

    def settings(self, policy: str | None = None) -> Settings:
        found = super().settings(policy)
        least, most = bounds_of(found).values()
        if most > MAX_FLEET:
            raise ConfigError(f"a simulated fleet has at most {MAX_FLEET} executors, not {most}")
        if self.start is not None and not least <= self.start <= most:
            raise ConfigError(f"--start must be between {least} and {most}, not {self.start}")
        return found

    def faults(self) -> tuple[Fault, ...]:
        return tuple(read_fault(text) for text in listed(self.fault or ()))


@Parameter(name="*")
@dataclass(frozen=True)
class GridOptions:
    """The loads, engines and seeds that every policy meets."""

    workload: Annotated[Listed, about("workload")] = None
    engine: Annotated[Listed, about("engine")] = None
    seeds: Annotated[Listed, about("seeds")] = None

    def workloads(self) -> list[str]:
        return listed(self.workload or ["sine"])

    def engines(self) -> list[str]:
        return listed(self.engine or ["micro-batch"])

    def seed_numbers(self, default: str = "1") -> list[int]:
        return seed_numbers(self.seeds or [default])


def bounds_of(settings: Settings) -> dict[str, Any]:
    """The bounds of the fleet, the same for every policy: else it is them that is compared."""
    return {name: getattr(settings.spec.limits, name) for name in DEFAULT_BOUNDS}


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
