"""What a workload does to recorded loads without being asked to, as sentences for the user."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from penstock.core.phrases import duration, executors, rate
from penstock.simulation.workloads.expressions import Parts, Sequence
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
    elif isinstance(workload, Parts):
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
