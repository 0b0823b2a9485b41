"""What is asked of a run: the SLO, and what executors, lateness and moves cost."""

from __future__ import annotations

from msgspec import Struct

from penstock.core.errors import ConfigError


class Goal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a run and what falling short costs.

    Parameters
    ----------
    slo_s
        A record is late when it waits longer than this.
    price
        Of one executor-hour.
    late_price
        If every record were late, it would cost as much as this many full fleets for the whole
        run: at 10, one percent of late records costs a tenth of the full fleet.
    move_price
        Of starting or removing one executor, on top of what is paid while it starts.
    warmup_s
        Run, but not scored.
    """

    slo_s: float = 10.0
    price: float = 1.0
    late_price: float = 10.0
    move_price: float = 1.0 / 60.0
    warmup_s: float = 600.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not 0.0 <= (value := getattr(self, name)) < float("inf"):
                raise ConfigError(f"{name} must be finite and not negative, not {value}")
