"""What a workload does to recorded loads without being asked to, as sentences for the user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.settings.notation import written
from penstock.simulation.workloads.expressions import Product, Sequence, Sum
from penstock.simulation.workloads.recorded import DEFAULT_PEAK_EXECUTORS, Trace
from penstock.simulation.workloads.shape import Capacity, Workload

#: Rows this many times as far apart as usual have a gap between them.
GAP_FACTOR = 3.0


def notes(workload: Workload, capacity_rps: Capacity) -> list[str]:
    """One sentence for each trace that is scaled by default, and for the gaps in each trace."""
    found = [note for trace in _traces(workload) for note in _notes(trace, capacity_rps)]
    return list(dict.fromkeys(found))


def _traces(workload: Workload) -> Iterator[Trace]:
    if isinstance(workload, Trace):
        yield workload
    elif isinstance(workload, Sum | Product):
        for part in workload.parts:
            yield from _traces(part)
    elif isinstance(workload, Sequence):
        for phase in workload.phases:
            yield from _traces(phase.workload)


def _notes(trace: Trace, capacity_rps: Capacity) -> Iterator[str]:
    name, piece = Path(trace.file).name, trace.piece()
    if (trace.peak_executors, trace.scale, trace.max_rps) == (None, None, None):
        peak_rps, to_rps = float(piece.rates_rps.max()), capacity_rps(DEFAULT_PEAK_EXECUTORS)
        if peak_rps > 0.0:
            yield (
                f"{name}: peak {_rate(peak_rps)} scaled by about {to_rps / peak_rps:.3g} to "
                f"{_rate(to_rps)}, which {DEFAULT_PEAK_EXECUTORS} executors carry "
                "(scale=1 keeps the rates)"
            )
    gaps_s = np.diff(piece.at_s)
    wide = np.flatnonzero(gaps_s > GAP_FACTOR * np.median(gaps_s)) if len(gaps_s) else gaps_s
    if len(wide):
        longest = int(wide[np.argmax(gaps_s[wide])])
        count = "a gap" if len(wide) == 1 else f"{len(wide)} gaps, the longest"
        were = "was" if len(wide) == 1 else "were"
        yield (
            f"{name}: {count} of {_span(gaps_s[longest])}, {_span(piece.at_s[longest])} after "
            f"the first row, {were} filled with a straight line"
        )


def _rate(rps: float) -> str:
    return f"{written(float(f'{rps:.3g}'))} records/s"


def _span(seconds: float) -> str:
    """Whole minutes where there are many.

    >>> _span(45.0), _span(3_725.0), _span(0.0)
    ('45s', '1h 2min', '0s')
    """
    minutes = round(seconds / 60.0)
    if minutes < 5:
        return f"{seconds:g}s"
    hours, rest = divmod(minutes, 60)
    return " ".join(text for count, text in ((hours, f"{hours}h"), (rest, f"{rest}min")) if count)
