"""Several queries that share one fleet: which of them is planned for, and each by itself."""

from collections.abc import Iterator, Mapping, Sequence

from penstock.core.errors import unknown
from penstock.core.model import QuerySample
from penstock.settings.goal import Goal, QueryGoal
from penstock.spark.sensor.offsets import SourceReading
from penstock.spark.sensor.query import QueryView

#: Another query has to be this much nearer to missing its SLO to be the one that is planned for.
LEADER_STAYS = 1.25


def nearest_to_miss(waits_s: Mapping[str, float], goal: Goal, last: str | None) -> str | None:
    """The query whose records wait longest against its SLO; the `last` one unless it is clear.

    >>> goal = Goal(slo_s=60.0, queries=(QueryGoal("clicks", slo_s=5.0),))
    >>> nearest_to_miss({"clicks": 4.0, "audit": 30.0}, goal, None)  # 0.8 and 0.5 of their SLOs
    'clicks'
    >>> nearest_to_miss({"clicks": 4.0, "audit": 54.0}, goal, "clicks")  # 1.25 x 0.8 and 0.9
    'clicks'
    """

    def nearness(name: str) -> float:
        slo_s = goal.of_query(name).slo_s or goal.slo_s
        return (LEADER_STAYS if name == last else 1.0) * waits_s[name] / max(slo_s, 1e-3)

    return max(waits_s, key=nearness, default=None)


def sample(
    view: QueryView, own: QueryGoal, at: SourceReading, done_rps: float | None, slots: float | None
) -> QuerySample:
    """One query by itself."""
    goal = own.slo_s, own.weight, own.exclude
    return QuerySample(view.name, *goal, at.arrival_rps, done_rps, at.delay_s, slots)


def not_running(goal: Goal, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The queries that the settings name and of which none runs, with the nearest name of one.

    >>> list(not_running(Goal(queries=(QueryGoal("cliks"),)), ["clicks", "audit"]))
    [("no query 'cliks' runs:", "did you mean 'clicks'? Known: audit, clicks")]
    """
    for each in goal.queries:
        if names and each.name not in names:
            hint = str(unknown("query", each.name, names)).partition(": ")[2]
            yield f"no query '{each.name}' runs:", hint
