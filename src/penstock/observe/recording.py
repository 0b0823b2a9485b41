"""A journal as a value, for notebooks: ``penstock.read_journal``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.core.journal import JournalHeader, read_header, read_rotated
from penstock.core.model import Step


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole journal: what was run, and every turn of it, oldest first."""

    header: JournalHeader
    steps: tuple[Step, ...]

    @property
    def rescales(self) -> tuple[Step, ...]:
        """The turns that asked for another number of executors."""
        return tuple(
            step
            for step in self.steps
            if step.snapshot and step.decision.target_executors != step.snapshot.fleet.target
        )

    def columns(self) -> dict[str, list[float | None]]:
        """The turns as columns of equal length, for any table or plotting library.

        ``None`` is what was not measured; a turn in which the sensor failed has only its time and
        its target.
        """
        seen = [step.snapshot for step in self.steps]
        measured = ("arrival_rps", "throughput_rps", "backlog_records", "delay_s")
        return {
            "at_s": [step.at_s for step in self.steps],
            **{name: [getattr(snapshot, name, None) for snapshot in seen] for name in measured},
            "active_executors": [None if s is None else s.fleet.active for s in seen],
            "target_executors": [step.decision.target_executors for step in self.steps],
        }


def read_journal(path: str | Path) -> Recording:
    """Read a journal, with the files that it was rotated into.

    Parameters
    ----------
    path
        What ``penstock simulate --journal``, ``penstock.simulate(journal=...)`` or
        ``penstock.attach(journal=...)`` wrote. A file that is no journal is a `ConfigError`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from penstock.lab.api import simulate
    >>> with TemporaryDirectory() as folder:
    ...     path = f"{folder}/run.jsonl"
    ...     run = simulate("static:4", "constant:20k", duration_s=1200.0, journal=path)
    ...     recording = read_journal(path)
    >>> recording.steps == tuple(run.steps), recording.header.run["policy"]
    (True, 'static:4')
    """
    place = Path(path)
    return Recording(read_header(place), tuple(read_rotated(place)))
