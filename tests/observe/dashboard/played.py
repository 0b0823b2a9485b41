"""A recorded run decided again by the present policy, to be played into a journal."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from penstock.core.journal import FileJournal, JournalHeader, read_header, read_steps
from penstock.core.model import Step
from penstock.lab.replay import replay
from penstock.settings.header import recorded_spec

RECORDED = Path(__file__).parents[2] / "recorded" / "sessions-wave.jsonl"


@cache
def recorded_run() -> tuple[JournalHeader, tuple[Step, ...]]:
    """Its header and steps: recorded decisions have no outlook, those of a replay do."""
    header = read_header(RECORDED)
    return header, tuple(replay(list(read_steps(RECORDED)), recorded_spec(header)))


class Player:
    """Writes the run into a journal, some steps at a time."""

    def __init__(self, path: Path) -> None:
        header, self.steps = recorded_run()
        self._journal = FileJournal(path, header)
        self.written = 0

    def close(self) -> None:
        self._journal.close()

    def play(self, upto: int) -> None:
        for step in self.steps[self.written : upto]:
            self._journal.write(step)
        self.written = max(self.written, upto)
