"""What the reproduction of a study gives: tables beside tables, claims, distances, calibration.

Nothing here runs anything: a study module measures, and says the result in these words. All of
it can be written as JSON.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from penstock.core.errors import ConfigError
from penstock.lab.experiments.statistics import spearman

Number = float | None  #: A number of a table; ``None`` where the paper prints none.


class Metric(Struct, frozen=True):
    """A column of a table: its name, its unit ("" for a count), and the decimals worth showing."""

    name: str
    unit: str = ""
    decimals: int = 2


class Entry(Struct, frozen=True):
    """A row: what the paper printed and what came out here, by the names of the metrics."""

    label: str
    paper: dict[str, Number]
    ours: dict[str, Number]


class Comparison(Struct, frozen=True):
    """A table of the paper beside ours."""

    title: str
    metrics: tuple[Metric, ...]
    entries: tuple[Entry, ...]

    def pairs(self, metric: str) -> list[tuple[float, float]]:
        """The numbers of the paper with ours, where both have one."""
        return [
            (paper, ours)
            for entry in self.entries
            if (paper := entry.paper.get(metric)) is not None
            and (ours := entry.ours.get(metric)) is not None
        ]


class Claim(Struct, frozen=True):
    """What the paper says, whether it holds here, by which numbers, and the reason of that."""

    claim: str
    text: str
    holds: bool | None  #: ``None`` for one that cannot be tested here.
    evidence: dict[str, float]
    reason: str = ""
    intervals: dict[str, float] = field(default_factory=dict)  #: Half of 95 %, by the evidence.
    is_given: bool = False  #: A number of it was fitted: that it holds shows little.

    @property
    def counts(self) -> bool:
        """Whether it is tested here, and could have failed or has."""
        return self.holds is False or (self.holds is True and not self.is_given)


class Distance(Struct, frozen=True):
    """How near the reproduction comes, as one number; `aim` is what was set out to reach."""

    name: str
    value: float
    aim: float | None = None
    more_is_better: bool = True

    @property
    def reached(self) -> bool | None:
        """Whether the aim is reached; ``None`` without one."""
        if self.aim is None:
            return None
        return self.value >= self.aim if self.more_is_better else self.value <= self.aim


class Calibration(Struct, frozen=True):
    """What was fitted of the engine, on what, and relative errors on data not seen by the fit."""

    job: str
    text: str
    fitted: dict[str, float]
    errors: dict[str, float] = field(default_factory=dict)


class ChartLine(Struct, frozen=True):
    """A line or a cloud of points; ``None`` in `y` is a gap."""

    name: str
    x: list[float]
    y: list[Number]


class Chart(Struct, frozen=True, tag="chart", tag_field="kind"):
    """Lines over a common axis."""

    title: str
    x_unit: str
    y_unit: str
    lines: tuple[ChartLine, ...]
    drawn: str = "lines"  #: Or "steps" (a value holds until the next), or "points".
    log_x: bool = False
    log_y: bool = False
    trend: tuple[float, float] | None = None  #: Intercept and slope of a line.
    labels: list[list[str]] = field(default_factory=list)  #: Of points.
    note: str = ""  #: What agrees with the paper and what does not.


class Box(Struct, frozen=True):
    """Five numbers of a sample: its ends, its quartiles and its median; and the paper's mean."""

    name: str
    group: str
    five: tuple[float, float, float, float, float]
    paper: Number = None


class Boxes(Struct, frozen=True, tag="boxes", tag_field="kind"):
    """Box plots side by side, those of a group together."""

    title: str
    unit: str
    boxes: tuple[Box, ...]
    note: str = ""


class Bar(Struct, frozen=True):
    """What the paper has and what we have."""

    name: str
    group: str
    paper: Number
    ours: float


class Bars(Struct, frozen=True, tag="bars", tag_field="kind"):
    """Bars in pairs: the paper's and ours."""

    title: str
    unit: str
    bars: tuple[Bar, ...]
    wide: bool = False
    note: str = ""


Figure = Chart | Boxes | Bars


class StudyRow(Struct, frozen=True):
    """One number of one run, of a setting (`row`) on a query, job or load (`group`)."""

    study: str
    group: str
    row: str
    run: int
    metric: str
    value: float


class Study(Struct, frozen=True):
    """One study, reproduced."""

    name: str
    title: str
    source: str
    protocol: str
    tables: tuple[Comparison, ...]
    claims: tuple[Claim, ...]
    distances: tuple[Distance, ...] = ()
    calibrations: tuple[Calibration, ...] = ()
    figures: tuple[Figure, ...] = ()
    rows: tuple[StudyRow, ...] = ()

    @property
    def counted(self) -> list[Claim]:
        return [claim for claim in self.claims if claim.counts]

    @property
    def held(self) -> int:
        return sum(claim.holds is True for claim in self.counted)

    @property
    def summary(self) -> str:
        """How many claims hold, of those that were tested and could fail.

        >>> Study("x", "X", "", "", (), (Claim("X1", "", None, {}),)).summary
        '0 of 0 claims hold; 1 cannot be tested here'
        """
        rest = {
            "hold by construction": sum(c.is_given and c.holds is True for c in self.claims),
            "cannot be tested here": sum(c.holds is None for c in self.claims),
        }
        more = "".join(f"; {count} {what}" for what, count in rest.items() if count)
        return f"{self.held} of {len(self.counted)} claims hold{more}"


def mean_relative_error(pairs: Sequence[tuple[float, float]]) -> float:
    """Mean of ``|ours - paper| / |paper|``, over the pairs whose paper side is not 0.

    >>> mean_relative_error([(10.0, 11.0), (4.0, 3.0), (0.0, 1.0)])
    0.175
    """
    errors = [abs(ours - paper) / abs(paper) for paper, ours in pairs if paper != 0.0]
    if not errors:
        raise ConfigError("a relative error needs at least one pair that is not 0")
    return sum(errors) / len(errors)


def agreement(what: str, pairs: Mapping[str, tuple[Number, float]], unit: str = "") -> str:
    """How many of our numbers come near to the paper's, and which lies furthest off.

    >>> agreement("latency", {"a": (1.0, 1.1), "b": (2.0, 5.0), "c": (None, 1.0)}, " s")
    'latency: 1 of 2 within a quarter of the paper, furthest off is b (5 s, paper 2 s)'
    """
    both = {name: (paper, ours) for name, (paper, ours) in pairs.items() if paper}
    off = {name: abs(ours - paper) / abs(paper) for name, (paper, ours) in both.items()}
    near = sum(each <= 0.25 for each in off.values())
    text = f"{what}: {near} of {len(off)} within a quarter of the paper"
    if near == len(off):
        return text
    worst = max(off, key=off.__getitem__)
    paper, ours = (f"{x:,.0f}" if x >= 100.0 else f"{x:.3g}" for x in both[worst])
    return f"{text}, furthest off is {worst} ({ours}{unit}, paper {paper}{unit})"


def distances(
    tables: Mapping[str, Comparison],
    aims: Mapping[str, float] | None = None,
    metrics: Sequence[Metric] | None = None,
) -> Iterator[Distance]:
    """Rank correlation and mean relative error of each metric; keys of `tables` are prefixes."""
    for prefix, table in tables.items():
        for metric in metrics or table.metrics:
            pairs = table.pairs(metric.name)
            if len(pairs) >= 2:
                name, aim = f"{prefix}{metric.name}", (aims or {}).get(metric.name)
                off = mean_relative_error(pairs)
                yield Distance(f"rank correlation, {name}", spearman(pairs), aim)
                yield Distance(f"mean relative error, {name}", off, more_is_better=False)
