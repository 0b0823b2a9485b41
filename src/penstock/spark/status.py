"""The status of a scaler and its job."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.settings.live import Mode

State = Literal["running", "paused", "stopped", "failed"]


class Status(Struct, frozen=True):
    """The state of the job and its scaler; fleet, delay and backlog as of the last turn."""

    state: State
    mode: Mode
    policy: str
    target: int | None = None
    registered: int | None = None
    active: int | None = None
    is_settled: bool = True
    delay_s: float | None = None
    backlog_records: float | None = None
    decisions: int = 0
    rescales: int = 0
    repairs: int = 0
    losses: int = 0
    last: str = ""
    error: str = ""
