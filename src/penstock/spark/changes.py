"""What may change while a job is scaled: its settings, their file, and a switch outside of it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from penstock.settings.goal import Goal
from penstock.settings.policy_spec import PolicySpec
from penstock.settings.toml import Mode, Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SettingsSource:
    """Where the settings come from: a file, and how to read it again."""

    path: Path
    load: Callable[[], Settings]


class Change(Struct, frozen=True):
    """What a running scaler is to follow from now on; `words` are for the log."""

    spec: PolicySpec
    goal: Goal
    mode: Mode
    words: str


class WatchedFile:
    """A file outside of the driver that may change while the job runs."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._stamp = self._now()

    def has_changed(self) -> bool:
        """Whether it is another one than at the last call, or has come or gone since."""
        before, self._stamp = self._stamp, self._now()
        return before != self._stamp

    def _now(self) -> tuple[int, int] | None:
        try:
            state = self.path.stat()
        except OSError:
            return None
        return state.st_mtime_ns, state.st_size


class SwitchFile:
    """A file that pauses Penstock or sets its mode.

    Anything else in it is logged, and what it said before holds: a typo, or a file that is read
    while it is written, must not let a paused scaler act.
    """

    def __init__(self, path: str) -> None:
        self._file = WatchedFile(path) if path else None
        self._says = ""
        self._says = self._read()

    def says(self) -> str:
        """``pause``, ``recommend`` or ``act``; empty if there is no such file."""
        if self._file is not None and self._file.has_changed():
            self._says = self._read()
        return self._says

    def _read(self) -> str:
        if self._file is None:
            return ""
        try:
            text = self._file.path.read_text(errors="replace")[:100].strip()
        except OSError:
            return ""
        if text in ("pause", "recommend", "act"):
            log.info("%s says %s", self._file.path, text)
            return text
        if text:  # an empty file is one that is being written
            log.warning("%s must say pause, recommend or act, not '%s'", self._file.path, text)
        return self._says
