"""Workloads from one line: ``(diurnal + bursts:base=5k) * 1.2 for 6h then square``.

From loosest to tightest::

    expression   phase then phase then ...
    phase        sum for DURATION           the duration may be left out if the sum has an end
    sum          product + product + ...
    product      atom * atom * ...
    atom         name:key=value,...   a number   a name from NAMED   ( expression )

Operators stand between spaces, because names and files may hold any of these signs.

>>> day = parse_workload("constant:rate=10 for 2s then constant:rate=4 * 2 + constant:rate=1")
>>> day.rates(4, seed=0, capacity_rps=float)
[10.0, 10.0, 9.0, 9.0]
>>> parse_workload("sine:mean=40k,amplitude=25k,period=3h").describe()
'sine:mean=40k,amplitude=25k'
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
from msgspec import Struct

from penstock.core.errors import ConfigError, unknown
from penstock.core.phrases import duration, executors, rate
from penstock.settings import notation
from penstock.simulation.workloads.shape import Capacity, Workload, refuse_negative
from penstock.simulation.workloads.traces import DEFAULT_PEAK_EXECUTORS, Trace
from penstock.simulation.workloads.workload import WORKLOADS, Constant

#: The loads of the studies.
_FILE = files(__package__) / "data" / "named.toml"
NAMED: dict[str, str] = tomllib.loads(_FILE.read_text(encoding="utf-8"))

LONGEST_PHASE_S = 366 * 86_400.0
GAP_FACTOR = 3.0  #: Rows this many times as far apart as usual have a gap between them.

T = TypeVar("T")


class Parts(Struct, frozen=True):
    """Workloads at the same time; those without an end go along with the longest that has one."""

    parts: tuple[Workload, ...]
    operator: ClassVar[str]
    ufunc: ClassVar[np.ufunc]

    def natural_duration_s(self) -> float | None:
        lengths = [part.natural_duration_s() for part in self.parts]
        return max((length for length in lengths if length is not None), default=None)

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        every = [
            part.rates(seconds, _child(seed, index), capacity_rps)
            for index, part in enumerate(self.parts)
        ]
        with np.errstate(over="ignore"):
            series = self.ufunc.reduce(every)
        return list(refuse_negative(series, self.describe).tolist())

    def describe(self) -> str:
        # What binds less tightly than the operator needs parentheses.
        looser = (Sum, Sequence) if isinstance(self, Sum) else (Sum, Product, Sequence)
        return f" {self.operator} ".join(_inside(part, *looser) for part in self.parts)


class Sum(Parts, frozen=True):
    """Several workloads at once: ``a + b``."""

    operator: ClassVar[str] = "+"
    ufunc: ClassVar[np.ufunc] = np.add


class Product(Parts, frozen=True):
    """One workload shaped by others, second by second: ``a * b``; a plain number is a factor."""

    operator: ClassVar[str] = "*"
    ufunc: ClassVar[np.ufunc] = np.multiply


class Phase(Struct, frozen=True):
    """A workload and how long it lasts; ``None`` is as long as it lasts by itself."""

    workload: Workload
    duration_s: float | None = None

    def length_s(self) -> float | None:
        return self.workload.natural_duration_s() if self.duration_s is None else self.duration_s

    def describe(self) -> str:
        text = _inside(self.workload, Sequence)
        if self.duration_s is None:
            return text
        return f"{text} for {notation.written(self.duration_s, seconds=True)}"


class Sequence(Struct, frozen=True):
    """One workload after the other, each from its own second 0: ``a for 2h then b``."""

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        for phase in self.phases:
            if phase.duration_s is not None and not 1.0 <= phase.duration_s <= LONGEST_PHASE_S:
                raise ConfigError(
                    f"'{phase.describe()}': a duration must be between 1 s and 366 d, "
                    f"not {phase.duration_s:g} s"
                )

    def rates(self, seconds: int, seed: int, capacity_rps: Capacity) -> list[float]:
        rates: list[float] = []
        for index, phase in enumerate(self.phases):
            length_s = phase.length_s()
            if length_s is None and index < len(self.phases) - 1:
                raise ConfigError(
                    f"'{phase.describe()}' never ends, so nothing can follow it: "
                    "say how long, as in 'a for 2h then b'"
                )
            # A phase is made in full and cut afterwards: its peak is that of the whole phase.
            length = seconds - len(rates) if length_s is None else round(length_s)
            rates += phase.workload.rates(length, _child(seed, index), capacity_rps)
            if len(rates) >= seconds:
                return rates[:seconds]
        return (rates * ceil(seconds / len(rates)))[:seconds]

    def natural_duration_s(self) -> float | None:
        lengths = [phase.length_s() for phase in self.phases]
        known = [length for length in lengths if length is not None]
        return sum(known) if len(known) == len(lengths) else None

    def describe(self) -> str:
        return " then ".join(phase.describe() for phase in self.phases)


def parse_workload(text: str) -> Workload:
    parser = _Parser(text)
    workload = parser.sequence()
    if not parser.done:
        raise parser.refusal("'+', '*', 'for', 'then' or the end")
    return workload


#: More cannot be meant, and each costs some of the stack.
MOST_PARENTHESES = 50


class _Parser:
    """Recursive descent over the words of one expression."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = _words(notation.checked_length(text, "a workload"))
        if (deep := self.words.count("(")) > MOST_PARENTHESES:
            raise ConfigError(f"a workload has at most {MOST_PARENTHESES} parentheses, not {deep}")
        self.position = 0

    @property
    def done(self) -> bool:
        return self.position == len(self.words)

    def sequence(self) -> Workload:
        phases = self.listed(self.phase, "then")
        is_plain = len(phases) == 1 and phases[0].duration_s is None
        return phases[0].workload if is_plain else Sequence(tuple(phases))

    def listed(self, part: Callable[[], T], operator: str) -> list[T]:
        parts = [part()]
        while self.take(operator):
            parts.append(part())
        return parts

    def phase(self) -> Phase:
        workload = self.sum()
        if not self.take("for"):
            return Phase(workload)
        return Phase(workload, notation.quantity(self.word("a duration such as 2h"), "a duration"))

    def sum(self) -> Workload:
        parts = self.listed(self.product, "+")
        return parts[0] if len(parts) == 1 else Sum(tuple(parts))

    def product(self) -> Workload:
        parts = self.listed(self.atom, "*")
        return parts[0] if len(parts) == 1 else Product(tuple(parts))

    def atom(self) -> Workload:
        if not self.take("("):
            return _single(self.word("a workload"))
        inner = self.sequence()
        if not self.take(")"):
            raise self.refusal("')'")
        return inner

    def take(self, operator: str) -> bool:
        if self.done or self.words[self.position] != operator:
            return False
        self.position += 1
        return True

    def word(self, expected: str) -> str:
        if self.done or self.words[self.position] in _OPERATORS:
            raise self.refusal(expected)
        self.position += 1
        return self.words[self.position - 1]

    def refusal(self, expected: str) -> ConfigError:
        found = "it ends" if self.done else f"there is '{self.words[self.position]}'"
        return ConfigError(f"workload '{self.text}': expected {expected}, but {found}")


_OPERATORS = frozenset(("+", "*", "for", "then", "(", ")"))
_BETWEEN_SPACES = re.compile(r"(?:^|(?<=\s))(\+|\*|for|then)(?=\s|$)")


def _words(text: str) -> list[str]:
    """The operators, parentheses and notations of an expression.

    A parenthesis groups at the edge of a notation only, and closes only what was opened, so a
    file may be called ``load (2).csv``.

    >>> _words("(sine + trace:load (2).csv) * 2")
    ['(', 'sine', '+', 'trace:load (2).csv', ')', '*', '2']
    """
    words: list[str] = []
    for piece in _BETWEEN_SPACES.split(text):
        word = piece.strip()
        while word.startswith("("):
            words.append("(")
            word = word[1:].lstrip()
        closing = 0
        while word.endswith(")") and word.count(")") > word.count("("):
            closing += 1
            word = word[:-1].rstrip()
        words += ([word] if word else []) + [")"] * closing
    return words


def _single(text: str) -> Workload:
    """A notation, a plain number, or a name that stands for an expression."""
    if expression := NAMED.get(text.replace("_", "-")):
        return parse_workload(expression)
    if text[0].isdigit() or text[0] in "+-.":
        return notation.build(Constant, {"rate": text}, "constant")
    parsed = notation.parse(text)
    shape = WORKLOADS.get(parsed.name.replace("-", "_"))
    if shape is None:
        if expression := NAMED.get(parsed.name.replace("_", "-")):
            raise ConfigError(f"{parsed.name} takes no options: it stands for '{expression}'")
        raise unknown("workload", parsed.name, [*WORKLOADS, *NAMED])
    return notation.realize(shape, parsed)


def _child(seed: int, index: int) -> int:
    """A seed for the index-th part, so that equal parts do not share their noise."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1)[0])


def _inside(part: Workload, *kinds: type) -> str:
    return f"({part.describe()})" if isinstance(part, kinds) else part.describe()


def notes(workload: Workload, capacity_rps: Capacity) -> list[str]:
    """One sentence for each trace that is scaled by default, and for the gaps in each trace."""
    found = [note for trace in traces_in(workload) for note in _notes(trace, capacity_rps)]
    return list(dict.fromkeys(found))


def traces_in(workload: Workload) -> Iterator[Trace]:
    """The recorded loads that a workload is made of."""
    if isinstance(workload, Trace):
        yield workload
    elif isinstance(workload, Parts):
        for part in workload.parts:
            yield from traces_in(part)
    elif isinstance(workload, Sequence):
        for phase in workload.phases:
            yield from traces_in(phase.workload)


def _notes(trace: Trace, capacity_rps: Capacity) -> Iterator[str]:
    name, piece = Path(trace.file).name, trace.piece()
    if (trace.peak_executors, trace.scale, trace.max_rps) == (None, None, None):
        peak_rps, to_rps = float(piece.rates_rps.max()), capacity_rps(DEFAULT_PEAK_EXECUTORS)
        if peak_rps > 0.0:
            factor = to_rps / peak_rps
            by = f"{factor:.3g}" if factor < 1000.0 else f"{factor:,.0f}"
            yield (
                f"{name}: peak {rate(peak_rps)} scaled by about {by} to "
                f"{rate(to_rps)}, which {executors(DEFAULT_PEAK_EXECUTORS, 'carry')} "
                "(scale=1 keeps the rates)"
            )
    gaps_s = np.diff(piece.at_s)
    wide = np.flatnonzero(gaps_s > GAP_FACTOR * np.median(gaps_s)) if len(gaps_s) else gaps_s
    if len(wide):
        longest = int(wide[np.argmax(gaps_s[wide])])
        gaps = "a gap" if len(wide) == 1 else f"{len(wide)} gaps, the longest"
        yield (
            f"{name}: {gaps} of {duration(gaps_s[longest])} ({duration(piece.at_s[longest])} after "
            "the first row), filled with straight lines"
        )
