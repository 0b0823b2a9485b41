"""What Koper's study published: its tables and recorded runs, and the engine fitted to them."""

from functools import lru_cache
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock.lab.studies.skeleton import data, prose
from penstock.lab.studies.study import Calibration
from penstock.simulation.calibration.fit_continuous import fit, replay
from penstock.simulation.calibration.fit_search import ROUNDS
from penstock.simulation.calibration.rows import RecordedSample, errors
from penstock.simulation.engines.continuous import ContinuousJob
from penstock.simulation.engines.dataflow import Dataflow, Operator

TEXT = prose("koper2022")
QUERIES = ("q1", "q3", "q11")
WINDOW_S = 60.0  #: The recorded rates and busy times are means over a minute.
SETTLED_ROWS = 8  #: The first two minutes of a recording are the start of the job itself.

IN_TIME_S = 1.0  #: Records that wait no longer are in time.

DS2_FACTOR = 1.33  #: DS2 ran with 33 % on top in the recorded runs, after rounding up.
MOST_WORKERS = 16

#: The study counts instances of a task by its operators: on query 11 two are chained in each, so
#: that DS2 takes every instance for two.
COUNTED = {"q1": 1, "q3": 1, "q11": 2}

JUDGED_AFTER = 0.5  #: A fit to this part of every recorded run is judged on the rest.
JUDGED_ROUNDS = 3


class Published(NamedTuple):
    """A row of tables 5.1 to 5.3: mean event-time lag, mean workers, rescales."""

    scaler: str
    setting: int
    latency_s: float
    workers: float
    rescales: int

    @property
    def label(self) -> str:
        return f"{self.scaler} {self.setting}"


class KoperRecording(Struct, frozen=True):
    """A recorded run, a row per 15 s."""

    query: str
    scaler: str
    setting: int
    rows: list[tuple[float, float, int, float, float, float, float, float, float, float]]

    @property
    def label(self) -> str:
        return f"{self.scaler} {self.setting}"


class Recordings(Struct, frozen=True):
    """The file as it is."""

    scalers: dict[str, str]  #: The policy of each scaler, as text to fill in.
    #: The dataflow of each query (figures 4.1 to 4.3).
    upstream: dict[str, dict[str, tuple[str, ...]]]
    #: What no recording shows: from request to registration, and how long a restart waits for more
    #: workers; checkpoints as the study configured them.
    assumed_job: ContinuousJob
    #: The parameters of the engine that the fit changes.
    fitted: list[str]
    tables: dict[str, list[Published]]
    #: Records/s in each minute, the same in all runs of a query.
    loads_rps: dict[str, list[float]]
    runs: list[KoperRecording]


@lru_cache(maxsize=1)
def recordings() -> Recordings:
    return data("koper2022", Recordings)


def rows_of(run: KoperRecording) -> list[RecordedSample]:
    """A recorded run as rows of records at the source.

    The study counts throughput at the sink: what comes out there per record that arrives brings
    it back. Not so where two streams are joined and records wait: then the streams are out of
    step, and what meets its match says little of what was read.
    """
    kept, joins = sink_records(run.query), run.query == "q3"
    return [
        RecordedSample(*row[:3], None if joins and row[5] > IN_TIME_S else row[3] / kept, *row[4:])
        for row in run.rows[SETTLED_ROWS:]
    ]


@lru_cache(maxsize=8)
def sink_records(query: str) -> float:
    """Records at the sink per record that arrives, while none waits."""
    rows = [row for run in _runs(query) for row in run.rows[SETTLED_ROWS:]]
    return median(row[3] / row[1] for row in rows if row[5] < IN_TIME_S and row[1] > 0.0)


def busiest_to_mean(query: str) -> float:
    """How much busier the busiest operator is than all on average, from what DS2 decided.

    Only the mean over operators was recorded. But DS2 asks for ``arrivals / (rate per instance /
    busy)`` instances, where `busy` is that of the busiest, rounds up, puts its margin on top and
    rounds up again: each rescale gives a range for the busy time. Taken is what lies in
    most of them.
    """
    ranges = [
        found
        for run in _runs(query)
        if run.scaler.startswith("ds2")
        for rows in [rows_of(run)]
        for three in zip(rows, rows[1:], rows[2:], strict=False)
        if (found := _range_of_ratio(*three, COUNTED[query])) is not None
    ]
    cells = list(pairwise(sorted({edge for range_ in ranges for edge in range_})))

    def agreeing(cell: tuple[float, float]) -> tuple[int, float]:
        low, high = cell
        return sum(first <= low and high <= last for first, last in ranges), high - low

    low, high = max(cells, key=agreeing)
    return (low + high) / 2.0


def _range_of_ratio(
    seen: RecordedSample, last: RecordedSample, after: RecordedSample, counted: int
) -> tuple[float, float] | None:
    """From where to where the ratio lies if DS2 made this rescale; ``None`` if there was none."""
    done_rps, busy = seen.throughput_rps, seen.busy_fraction
    if not busy or done_rps is None or done_rps < 0.5 * seen.arrival_rps:
        return None
    if not seen.workers == last.workers != after.workers < MOST_WORKERS:
        return None
    as_mean_says = seen.arrival_rps / (done_rps / (counted * seen.workers) / busy)
    instances = int(after.workers / DS2_FACTOR)
    return (instances - 1) / as_mean_says, instances / as_mean_says


def template(query: str) -> ContinuousJob:
    """The dataflow of figures 4.1 to 4.3; the others share evenly what the busiest leaves."""
    ratio, kept = busiest_to_mean(query), sink_records(query)
    upstream = recordings().upstream[query]
    busiest, thinned = {
        # Reading is the most work: nothing was ever held back in front of a later operator.
        "q1": ("source", {}),
        # Three of the generator's six states pass the filter; the join brings out what the sink
        # was seen to get.
        "q3": ("join", {"filter": 0.5, "join": kept / (0.5 + 0.5 * 0.5)}),
        # Timestamps are chained to the source, the sink to the window: its input is all there is.
        "q11": ("window", {"source": kept}),
    }[query]
    operators = _with_work(upstream, thinned, busiest, _other_share(len(upstream), ratio))
    return msgspec.structs.replace(recordings().assumed_job, operators=operators)


class Fit(NamedTuple):
    """A query's job, fitted to a part of each of its recorded runs, from their begin on."""

    query: str
    part: float = 1.0
    rounds: int = ROUNDS


def first_half(query: str) -> Fit:
    """A fit that is judged on the rest of the runs."""
    return Fit(query, JUDGED_AFTER, JUDGED_ROUNDS)


def fitted(one: Fit) -> ContinuousJob:
    """The job that comes nearest to what was recorded.

    The study runs on jobs that have seen all of it: what a job does that has been late for long is
    seen seldom. On query 11 16 workers under the HPA, minutes late, bring out 111,000 records/s
    from minute 76 on, fewer than 4 that are in time (136,000).
    """
    parts = [rows[: int(len(rows) * one.part)] for rows in map(rows_of, _runs(one.query))]
    return fit(template(one.query), parts, WINDOW_S, one.rounds)


def calibration(query: str, job: ContinuousJob, judged_job: ContinuousJob) -> Calibration:
    """What was fitted, and how far off a fit to the first halves is on the second."""
    recorded = [*map(rows_of, _runs(query))]
    judged = []
    for rows in recorded:
        middle = int(len(rows) * JUDGED_AFTER)
        judged.append(errors(rows[middle:], replay(judged_job, rows, WINDOW_S)[middle:]))
    names = ", ".join(run.label for run in _runs(query))
    found = {
        "rps_per_worker": job.capacity_rps(1),
        "busy_at_saturation": job.busy_at_saturation,
        **{name: float(getattr(job, name)) for name in recordings().fitted},
    }
    off = {
        name: fmean([value for one in judged if (value := getattr(one, name)) is not None])
        for name in ("throughput", "delay", "cpu", "busy")
    }
    return TEXT.calibration(query, found, off, names=names, rows=sum(map(len, recorded)))


def _runs(query: str) -> list[KoperRecording]:
    return [run for run in recordings().runs if run.query == query]


def _other_share(count: int, ratio: float) -> float:
    """The work of each other operator relative to the busiest, if that is `ratio` times the mean.

    >>> _other_share(3, 1.5)  # mean of 1, 1/2, 1/2 is 2/3
    0.5
    """
    return min(1.0, max(0.05, (count / ratio - 1.0) / (count - 1)))


def _with_work(
    names: dict[str, tuple[str, ...]], thinned: dict[str, float], busiest: str, share: float
) -> tuple[Operator, ...]:
    """Operators whose work per record that arrives at the job is 1 for the busiest."""

    def operators(service_s: dict[str, float]) -> tuple[Operator, ...]:
        return tuple(
            Operator(name, service_s.get(name, 1.0), upstream, thinned.get(name, 1.0))
            for name, upstream in names.items()
        )

    inputs = Dataflow(operators({})).inputs
    work = {
        name: (1.0 if name == busiest else share) / taken * 1e-6
        for name, taken in zip(names, inputs, strict=True)
    }
    return operators(work)
