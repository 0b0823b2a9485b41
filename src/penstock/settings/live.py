"""How a live job is scaled: the table ``[live]`` of a penstock.toml. Light to import."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.core.errors import ConfigError

Mode = Literal["act", "recommend"]


class LiveSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What only a running job needs.

    Parameters
    ----------
    mode
        "act" changes the fleet; "recommend" says what it would do and moves nothing.
    every_s
        Seconds between decisions; not set: what the policy asks for.
    admission
        Cap each batch to what the fleet gets through in time, so that no backlog is one batch.
    """

    mode: Mode = "act"
    every_s: float | None = None
    admission: bool = False

    def __post_init__(self) -> None:
        if self.mode not in ("act", "recommend"):
            raise ConfigError(f"mode must be act or recommend, not '{self.mode}'")
        if self.every_s is not None and not self.every_s > 0.0:
            raise ConfigError(f"every_s must be positive, not {self.every_s}")
