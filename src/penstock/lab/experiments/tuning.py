"""Search of a policy's parameters: successive halving, judged on runs that it has not seen.

Many candidates run once on each load; the better third continues with more seeds, and so on until
a few are left (Jamieson and Talwalkar, 2016). They are ranked by cost relative to that of the
policy's defaults on the same run, so that all loads weigh the same. The best of the last round then
has to beat the defaults on seeds and loads that were held back.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from math import ceil, log
from random import Random
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from penstock.core.errors import ConfigError, unknown
from penstock.core.model import Limits
from penstock.lab.experiments.scenario import Scenario
from penstock.lab.experiments.statistics import mean
from penstock.lab.experiments.tournament import Cell, Row
from penstock.policies import POLICIES
from penstock.settings.goal import Goal
from penstock.settings.notation import keys_of, parse
from penstock.settings.policy_spec import PolicySpec, read_policy_spec

#: One of this many candidates continues in the next round; how many are left for the last one.
ONE_OF, FINALISTS = 3, 3
REACH = 4.0  #: A parameter is searched from its default divided by this to its default times this.
#: How often a candidate is drawn again when the policy refuses it, or when it is there already.
TRIES = 50

Play = Callable[[Sequence[Cell]], list[Row]]


class Dimension(Struct, frozen=True):
    """A parameter and where it is searched: on a logarithmic scale, unless that begins at 0."""

    name: str
    low: float
    high: float
    whole: bool = False

    def draw(self, random: Random) -> float:
        """A value with three digits: more would only look exact."""
        if self.low > 0.0:
            value = self.low * float((self.high / self.low) ** random.random())
        else:
            value = self.low + (self.high - self.low) * random.random()
        if self.whole:
            return round(value)
        return min(self.high, max(self.low, float(f"{value:.3g}")))


class Split(Struct, frozen=True):
    """What is tuned on, one list of runs per seed, and what is held back."""

    training: tuple[tuple[Scenario, ...], ...]
    validation: tuple[Scenario, ...]


class Judged(Struct, frozen=True):
    """A candidate and its cost, as a multiple of the defaults' on the same runs: less is better."""

    policy: str
    cost_ratio: float
    executor_hours: float
    late_fraction: float


class Round(Struct, frozen=True):
    """All candidates of a round, best first, and the number of runs of each."""

    runs: int
    candidates: tuple[Judged, ...]


class Tuning(Struct, frozen=True):
    """How a search went. `validated` has the finalists, best of the last round first."""

    defaults: str
    rounds: tuple[Round, ...]
    validated: tuple[Judged, ...]

    @property
    def found(self) -> Judged:
        """The best of the last round, as it did on what was held back."""
        return self.validated[0]

    @property
    def better(self) -> bool:
        return self.found.policy != self.defaults and self.found.cost_ratio < 1.0


def space(
    policy: str, wanted: Mapping[str, tuple[float, float] | None] | None = None
) -> list[Dimension]:
    """The parameters to search, each with its range: those wanted, or else all that are numbers.

    A range that is not given reaches from a quarter of the default to four times of it, inside
    what the parameter allows. What the text of the policy sets is left as it is; so is what belongs
    to the goal, and how often the policy looks.

    >>> space("ds2", {"overprovisioning": None, "window": (30.0, 120.0)})
    [Dimension(name='overprovisioning', low=0.0825, high=1.32, whole=False),
     Dimension(name='window_s', low=30.0, high=120.0, whole=False)]
    >>> [each.name for each in space("ds2:window=1min")]
    ['overprovisioning', 'least_shrink']
    """
    notation = parse(policy)
    if (kind := POLICIES.get(notation.name)) is None:
        raise unknown("policy", notation.name, POLICIES)
    entry = read_policy_spec(policy)
    own, around = keys_of(kind), keys_of(Limits)
    names = list(dict.fromkeys(own.values()))
    fixed = {(own | around).get(key) for key in notation.options}
    fixed.update(names[: len(notation.positional)])
    if not wanted:
        left = fixed | set(Goal.__struct_fields__) | {"period_s"}
        found = [_dimension(entry, name, None) for name in names if name not in left]
        if not any(found):
            raise ConfigError(f"{policy} has no parameter to search: name one with its range")
        return [each for each in found if each is not None]
    dimensions = []
    for key, span in wanted.items():
        if (name := (around | own).get(key)) is None:
            raise unknown("parameter", key, own.keys() | around.keys(), notation.name)
        if name in fixed:
            raise ConfigError(f"{policy} sets {key} already: it cannot be searched as well")
        if (dimension := _dimension(entry, name, span)) is None:
            raise ConfigError(f"{key} needs a range to be searched in, such as {key}=1..5")
        dimensions.append(dimension)
    return dimensions


def _dimension(entry: PolicySpec, name: str, span: tuple[float, float] | None) -> Dimension | None:
    """``None`` for what is no number, or has no range that suggests itself."""
    owner: Any = entry.policy if hasattr(entry.policy, name) else entry.limits
    number, least, most = _numeric(get_type_hints(type(owner), include_extras=True)[name])
    if span is not None:
        if number is None:
            raise ConfigError(f"{name} is not a number: it cannot be searched")
        low, high = span
        wrong = f"{name} cannot be searched from {low:g} to {high:g}"
        if low >= high:
            raise ConfigError(f"{wrong}: the lower end comes first")
        if not least <= low < high <= most:
            raise ConfigError(f"{wrong}: it lies between {least:g} and {most:g}")
    else:
        default = getattr(owner, name)
        if number is None or default is None or default <= 0:
            return None
        low, high = max(least, default / REACH), min(most, default * REACH)
    if number is int:
        low, high = ceil(low), int(high)
    return Dimension(name, low, high, number is int) if low < high else None


def _numeric(hint: Any) -> tuple[type | None, float, float]:
    """The kind of number that a type allows, and its bounds.

    >>> _numeric(Annotated[float, Meta(ge=0, lt=1)])
    (<class 'float'>, 0.0, 1.0)
    >>> _numeric(bool)[0]
    """
    if get_origin(hint) is Annotated:
        kind, *metas = get_args(hint)
        number, least, most = _numeric(kind)
        for meta in (each for each in metas if isinstance(each, Meta)):
            least = max([least, *(float(v) for v in (meta.ge, meta.gt) if v is not None)])
            most = min([most, *(float(v) for v in (meta.le, meta.lt) if v is not None)])
        return number, least, most
    for each in get_args(hint) if get_origin(hint) in (Union, UnionType) else ():
        number, least, most = _numeric(each)
        if number is not None:
            return number, least, most
    return hint if hint in (int, float) else None, float("-inf"), float("inf")


def candidates(policy: str, dimensions: Sequence[Dimension], count: int, seed: int) -> list[str]:
    """At most `count` different policies drawn from the space, each one that the policy allows.

    >>> candidates("ds2", space("ds2", {"overprovisioning": (0.1, 1.0)}), 2, seed=1)
    ['ds2:overprovisioning=0.136', 'ds2:overprovisioning=0.704']
    """
    random = Random(seed)
    found: dict[str, None] = {}
    for _ in range(TRIES * count):
        if len(found) == count:
            break
        values = ",".join(f"{each.name}={each.draw(random)!r}" for each in dimensions)
        text = f"{policy}{',' if ':' in policy else ':'}{values}"
        try:
            read_policy_spec(text)
        except ConfigError:
            continue  # the values do not go together
        found[text] = None
    if not found:
        raise ConfigError(f"no values of {policy} in these ranges go together")
    return list(found)


def split(
    workloads: Sequence[str],
    unseen: Sequence[str],
    engines: Sequence[str],
    seeds: Sequence[int],
    **common: Any,
) -> Split:
    """The last third of the seeds is held back, and all loads that are only for validation.

    >>> parts = split(["sine"], ["spikes"], ["micro-batch"], [1, 2, 3, 4])
    >>> [[each.seed for each in runs] for runs in parts.training]
    [[1], [2], [3]]
    >>> [(each.workload, each.seed) for each in parts.validation]
    [('sine', 4), ('spikes', 4)]
    """
    if len(seeds) < 2:
        raise ConfigError("tuning needs at least 2 seeds: a third of them is held back to validate")
    held = max(1, len(seeds) // 3)

    def runs(loads: Sequence[str], seed: int) -> tuple[Scenario, ...]:
        return tuple(Scenario(load, engine, seed, **common) for load in loads for engine in engines)

    both = list(dict.fromkeys([*workloads, *unseen]))
    validation = tuple(run for seed in seeds[-held:] for run in runs(both, seed))
    return Split(tuple(runs(workloads, seed) for seed in seeds[:-held]), validation)


def sizes(count: int, seeds: int) -> list[tuple[int, int]]:
    """How many candidates and how many seeds each round has.

    >>> sizes(27, 4), sizes(2, 4)
    ([(27, 1), (9, 2), (3, 4)], [(2, 4)])
    """
    rounds = 1 + max(0, ceil(log(count / FINALISTS, ONE_OF) - 1e-9))
    return [
        (ceil(count / ONE_OF**place), ceil(seeds / ONE_OF ** (rounds - 1 - place)))
        for place in range(rounds)
    ]


def tune(
    defaults: str,
    drawn: Sequence[str],
    parts: Split,
    goal: Goal,
    bounds: dict[str, Any],
    play: Play,
    on_round: Callable[[Round], None] = lambda _: None,
) -> Tuning:
    """Halve the candidates until a few are left, then validate them."""
    known: dict[tuple[str, Scenario], Row] = {}

    def judge(policies: Sequence[str], runs: Sequence[Scenario]) -> list[Judged]:
        wanted = [(policy, run) for run in runs for policy in dict.fromkeys([defaults, *policies])]
        missing = [key for key in wanted if key not in known]
        rows = play([Cell(policy, run, goal, bounds) for policy, run in missing]) if missing else []
        known.update(zip(missing, rows, strict=True))
        return [_judged(policy, defaults, runs, known) for policy in policies]

    left, rounds = list(drawn), []
    for count, seeds in sizes(len(drawn), len(parts.training)):
        runs = [run for seed in parts.training[:seeds] for run in seed]
        ranked = sorted(judge(left[:count], runs), key=lambda each: each.cost_ratio)
        rounds.append(Round(len(runs), tuple(ranked)))
        on_round(rounds[-1])
        left = [each.policy for each in ranked]
    finalists = left[:FINALISTS]
    # A candidate that costs as much as the defaults in training does not replace them.
    place = 0 if rounds[-1].candidates[0].cost_ratio >= 1.0 else len(finalists)
    finalists.insert(place, defaults)
    return Tuning(defaults, tuple(rounds), tuple(judge(finalists, parts.validation)))


def _judged(
    policy: str, defaults: str, runs: Sequence[Scenario], known: Mapping[tuple[str, Scenario], Row]
) -> Judged:
    rows = [known[policy, run] for run in runs]
    ratio = mean([_ratio(known[policy, run].cost, known[defaults, run].cost) for run in runs])
    hours = mean([row.executor_hours for row in rows])
    return Judged(policy, ratio, hours, mean([row.late_fraction for row in rows]))


def _ratio(cost: float, default: float) -> float:
    if default > 0.0:
        return cost / default
    return 1.0 if cost == default else float("inf")


def values_of(policy: str, goal: Goal) -> dict[str, Any]:
    """The parameters of a candidate that are not at their defaults.

    >>> values_of("ds2:overprovisioning=0.5", Goal())
    {'overprovisioning': 0.5}
    """
    found = read_policy_spec(policy, goal=goal).policy
    plain = type(found)()
    return {
        field.name: value
        for field in dataclasses.fields(found)  # type: ignore[arg-type]
        if (value := getattr(found, field.name)) != getattr(plain, field.name)
    }
