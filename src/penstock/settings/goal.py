"""What is asked of a run: the SLO, and what executors, lateness and moves cost."""

from msgspec import Struct

from penstock.core.errors import ConfigError


class QueryGoal(Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked of one query of several.

    Parameters
    ----------
    name: That of the query, as given to `queryName`.
    slo_s: Its own SLO; not set: that of all.
    weight: What its late records cost against those of the others.
    exclude: Do not scale for this query: what waits for it does not count.
    """

    name: str
    slo_s: float | None = None
    weight: float = 1.0
    exclude: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise ConfigError("name must be that of a query, not empty")
        for name, value in (("slo_s", self.slo_s), ("weight", self.weight)):
            if value is not None and not 0.0 < value < float("inf"):
                raise ConfigError(f"{name} must be finite and more than 0, not {value}")
        if self.exclude and (self.slo_s is not None or self.weight != 1.0):
            raise ConfigError("an excluded query has neither an SLO nor a weight")


class Goal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a run and what falling short costs.

    Parameters
    ----------
    slo_s: A record is late when it waits longer than this.
    price: Of one executor-hour.
    core_price, gb_price: Of one core-hour, and of one GB (2^30 bytes) of memory for an hour: they
        replace `price`.
    executor_cores, executor_memory_gb: The size of an executor, for these. A Spark job says it.
    currency: Of the prices. With a price or a currency, reports and metrics say what the fleet
        costs.
    max_cost_per_day: The fleet of a day (UTC) costs no more than this, as far as the bounds allow;
        not set: no limit.
    late_price: If every record were late, it would cost as much as this many full fleets for the
        whole run: at 10, one percent of late records costs a tenth of the full fleet.
    move_price: Of starting or removing one executor, on top of what is paid while it starts.
    warmup_s: Run, but not scored.
    queries: What is asked of single queries.
    """

    slo_s: float = 10.0
    price: float = 1.0
    core_price: float | None = None
    gb_price: float | None = None
    executor_cores: float | None = None
    executor_memory_gb: float | None = None
    currency: str = ""
    max_cost_per_day: float | None = None
    late_price: float = 10.0
    move_price: float = 1.0 / 60.0
    warmup_s: float = 600.0
    queries: tuple[QueryGoal, ...] = ()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not 0.0 <= value < float("inf"):
                raise ConfigError(f"{name} must be finite and not negative, not {value}")
        if self.by_size and self.price != 1.0:
            raise ConfigError("price is for an executor: give it, or core_price and gb_price")
        price = (self.core_price or 0.0) + (self.gb_price or 0.0) if self.by_size else self.price
        if self.max_cost_per_day is not None and not (self.max_cost_per_day > 0.0 < price):
            both = f"{self.max_cost_per_day} and {price}"
            raise ConfigError(f"max_cost_per_day and price must be positive, not {both}")
        names = [each.name for each in self.queries]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"the query '{twice[0]}' is named {len(twice)} times")

    @property
    def excluded(self) -> set[str]:
        return {each.name for each in self.queries if each.exclude}

    def of_query(self, name: str) -> QueryGoal:
        return next((each for each in self.queries if each.name == name), QueryGoal(name))

    @property
    def by_size(self) -> bool:
        """Whether prices are for cores and memory."""
        return self.core_price is not None or self.gb_price is not None

    @property
    def executor_price(self) -> float:
        """Of one executor-hour.

        >>> goal = Goal(core_price=0.04, gb_price=0.01, executor_cores=2, executor_memory_gb=8.8)
        >>> round(goal.executor_price, 3)
        0.168
        """
        if not self.by_size:
            return self.price
        cores = (self.core_price or 0.0) * (self.executor_cores or 0.0)
        return cores + (self.gb_price or 0.0) * (self.executor_memory_gb or 0.0)

    @property
    def is_priced(self) -> bool:
        """Whether costs are money, and not only executor-hours."""
        return self.currency != "" or self.executor_price != 1.0

    def money(self, executor_hours: float) -> str:
        """What executors cost, with more digits where it is little.

        >>> goal = Goal(price=0.5, currency="EUR")
        >>> goal.money(6.0), goal.money(0.2)
        ('3.00 EUR', '0.100 EUR')
        """
        cost = executor_hours * self.executor_price
        return f"{cost:,.{2 if cost >= 0.995 else 3}f} {self.currency}".rstrip()

    @property
    def limits(self) -> dict[str, float]:
        """The budget as a limit; empty if there is none."""
        if self.max_cost_per_day is None:
            return {}
        return {"max_executor_hours_per_day": self.max_cost_per_day / self.executor_price}
