"""The settings of a penstock.toml, checked; a mistake is named with its place.

>>> settings = parse('''
... [policy]
... name = "static"
... executors = 6
... [limits]
... max_executors = 8
... ''', "penstock.toml")
>>> settings.spec.policy
Static(executors=6, period_s=60.0)
>>> settings.spec.limits.max_executors
8
>>> parse("[limits]\\nmax_executor = 8", "penstock.toml")
Traceback (most recent call last):
penstock.core.errors.ConfigError: unknown key 'max_executor' in penstock.toml [limits]: did you mean
    'max_executors'? Known: ...
"""

import dataclasses
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from penstock.core.errors import ConfigError, unknown
from penstock.core.files import file_errors
from penstock.core.journal import FileJournal, Fsync, JournalHeader
from penstock.core.model import Limits
from penstock.core.protocols import Policy
from penstock.core.schedule import ScheduledLimit
from penstock.policies import DEFAULT_POLICY
from penstock.settings.goal import Goal, QueryGoal
from penstock.settings.notation import address, keys_of, quantity
from penstock.settings.policy_spec import (
    DEFAULT_BOUNDS,
    PolicySpec,
    policy_text,
    read_policy_spec,
    spec_of,
    with_goal,
)

T = TypeVar("T")
S = TypeVar("S", bound=Struct)

FILE_NAME = "penstock.toml"
MOST_BYTES = 1024 * 1024

#: Values that replace those of the file, by table and key.
Overrides = Mapping[str, Any]
Mode = Literal["act", "recommend"]
Cluster = Literal["fast", "cloud", "on-premise"]
#: What kind of cluster executors come from: how long they are kept, and take to start until some
#: have been seen to. Machines of a cloud take minutes, and are paid for by the minute.
CLUSTERS: dict[Cluster, dict[str, float]] = {
    "fast": {},
    "cloud": {"min_lifetime_s": 300.0, "billing_s": 60.0, "assumed_startup_s": 120.0},
    "on-premise": {"min_lifetime_s": 60.0, "assumed_startup_s": 30.0},
}


class JournalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the journal is kept, and how much of it.

    Parameters
    ----------
    path: The file, or the URI of a folder in a store; empty keeps no journal.
    fsync: Force to disk "always", at each "rescale", or "never".
    max_bytes: Size at which the file is rotated.
    keep: How many rotated files stay.
    """

    path: str = ""
    fsync: Fsync = "rescale"
    max_bytes: int = 64 * 1024 * 1024
    keep: int = 4

    def open(self, header: JournalHeader | None = None) -> FileJournal | str | None:
        """The journal to write, continued if it is there, or its URI; ``None`` where none is."""
        if not self.path or "://" in self.path:
            return self.path or None
        return FileJournal(
            Path(self.path), header, fsync=self.fsync, max_bytes=self.max_bytes, keep=self.keep
        )


class LiveSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What only a running job needs.

    Parameters
    ----------
    mode: "act" changes the fleet; "recommend" says what it would do and moves nothing.
    every_s: Seconds between decisions; not set: what the policy asks for.
    admission: Cap each batch to what the fleet gets through in time, so that no backlog is one
        batch.
    cluster: "fast" if executors come in seconds, "cloud" if machines have to be started for them,
        "on-premise" between the two: how long executors are kept (`min_lifetime_s`), in which spans
        they are paid for (`billing_s`), and how long they are assumed to take to start until some
        have been seen to.
    switch: A file that says "pause", "recommend" or "act", read while the job runs; while it is not
        there, `mode` holds.
    metrics: HOST:PORT at which the driver serves metrics for Prometheus, such as "127.0.0.1:9404";
        empty serves none.
    spark_metrics: Give the same metrics to Spark's own metrics system, and so to the sinks of the
        cluster.
    opentelemetry: Send the same metrics by OTLP over HTTP, as the variables OTEL_... of the
        environment say.
    dashboard: HOST:PORT at which the driver serves a live page, such as "127.0.0.1:4041"; empty
        serves none. Another address than loopback needs a token in the environment variable
        PENSTOCK_DASHBOARD_TOKEN.
    log: "json" logs one JSON object per line on standard error; "text" leaves the log as it is.
    webhook: An http(s) address that rescales, refusals, loss of sight and lack of room are posted
        to, as CloudEvents.
    commit_offsets_to: A consumer group that the processed offsets of Kafka sources are committed
        to, for tools that show its lag; {query} stands for the name of the query. Empty commits
        none.
    kubernetes_events: On Kubernetes, make an Event on the driver's pod of what the webhook gets.
    """

    mode: Mode = "act"
    every_s: float | None = None
    admission: bool = False
    cluster: Cluster = "fast"
    switch: str = ""
    metrics: str = ""
    spark_metrics: bool = False
    opentelemetry: bool = False
    dashboard: str = ""
    log: Literal["text", "json"] = "text"
    webhook: str = ""
    commit_offsets_to: str = ""
    kubernetes_events: bool = True

    def __post_init__(self) -> None:
        if self.mode not in ("act", "recommend"):
            raise ConfigError(f"mode must be act or recommend, not '{self.mode}'")
        if self.every_s is not None and not self.every_s > 0.0:
            raise ConfigError(f"every_s must be positive, not {self.every_s}")
        if self.cluster not in CLUSTERS:
            raise unknown("cluster", self.cluster, CLUSTERS)
        if self.metrics:
            address(self.metrics, "metrics")
        if self.dashboard:
            address(self.dashboard, "dashboard")
        if self.log not in ("text", "json"):
            raise ConfigError(f"log must be text or json, not '{self.log}'")
        if self.webhook and not re.match(r"https?://[^/]", self.webhook):
            raise ConfigError("webhook must be an address that begins with http:// or https://")


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of a penstock.toml as they stand there; each may be left out."""

    policy: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    goal: dict[str, Any] = {}
    journal: dict[str, Any] = {}
    live: dict[str, Any] = {}
    schedule: list[dict[str, Any]] = []
    query: list[dict[str, Any]] = []


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a penstock.toml can say, checked."""

    spec: PolicySpec
    goal: Goal = field(default_factory=Goal)
    journal: JournalSettings = field(default_factory=JournalSettings)
    live: LiveSettings = field(default_factory=LiveSettings)


def parse(text: str, where: str) -> Settings:
    """The settings of a TOML text; a mistake is named with its place.

    >>> parse("[goal]\\nslo_s = 5.0", "here").goal.slo_s
    5.0
    """
    return settle({where: _tables(text, where)})


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a file as they stand there."""
    with file_errors(f"cannot read {path}"), path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path} has over {MOST_BYTES >> 20} MiB, which no settings have")
    try:
        return _tables(content.decode(), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file in UTF-8") from error


def _tables(text: str, where: str) -> dict[str, Any]:
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits
        raise ConfigError(f"{where} is not valid TOML: {error}") from error
    convert(Document, tables, where)
    return tables


def settle(layers: Mapping[str, Overrides], policy: str | Policy | None = None) -> Settings:
    """The settings of all layers, by their names; a later one wins, and so does a `policy`.

    >>> weak = {"policy": {"name": "static", "executors": 4}, "limits": {"max_executors": 8}}
    >>> settings = settle({"file": weak, "conf": {"policy": {"name": "ds2:cooldown=60s"}}})
    >>> settings.spec.limits.max_executors, settings.spec.limits.cooldown_s
    (8, 60.0)
    """
    found: dict[str, Any] = {}
    for tables in layers.values():
        if "schedule" in tables.get("limits", {}):
            found.pop("schedule", None)
        for table, keys in tables.items():
            replaces = isinstance(keys, list) or (table == "policy" and "name" in keys)
            found[table] = keys if replaces else {**found.get(table, {}), **keys}

    def where(table: str) -> str:
        names = [name for name in layers if layers[name].get(table)]
        return f"{' and '.join(names or list(layers)[:1])} [{table}]"

    document = convert(Document, found, " and ".join(layers))
    goal = convert(Goal, document.goal, where("goal"))
    for price, size in ("core_price", "executor_cores"), ("gb_price", "executor_memory_gb"):
        if getattr(goal, price) is not None and not getattr(goal, size):
            raise ConfigError(f"{where('goal')}: {price} needs {size}, which is not known")
    if document.query:
        queries = read_list(QueryGoal, document.query, where("query"))
        goal = convert(Goal, asdict(goal) | {"queries": queries}, where("query"))
    live = convert(LiveSettings, document.live, where("live"))
    limits = dict(document.limits)
    if document.schedule:
        limits["schedule"] = read_list(ScheduledLimit, document.schedule, where("schedule"))
    given = limits.keys() | set()
    if policy is None:
        spec = _read_spec(document.policy, limits, goal, where)
        given |= document.policy.keys()
    else:
        checked = convert(Limits, DEFAULT_BOUNDS | limits, where("limits"))
        bounds = {key: getattr(checked, key) for key in DEFAULT_BOUNDS | limits}
        spec = spec_of(policy, bounds, goal)
    return Settings(
        spec=with_cluster(spec, live.cluster, spec.given | given),
        goal=goal,
        journal=convert(JournalSettings, document.journal, where("journal")),
        live=live,
    )


def _read_spec(
    table: Mapping[str, Any], limits: Mapping[str, Any], goal: Goal, where: Callable[[str], str]
) -> PolicySpec:
    """The policy and its limits; the name may be a policy text, over which the tables win."""
    parameters = dict(table)
    name = parameters.pop("name", DEFAULT_POLICY)
    try:
        text = read_policy_spec(str(name))
    except ConfigError as error:
        raise ConfigError(f"{where('policy')}: {error}") from None
    own = {f.name for f in dataclasses.fields(text.policy)}  # type: ignore[arg-type]
    values = {each: getattr(text.policy, each) for each in text.given & own}
    policy: Policy = convert(type(text.policy), {**values, **parameters}, where("policy"))
    policy = with_goal(policy, goal, given=values.keys() | parameters.keys())
    both = convert(Limits, {**asdict(text.limits), **goal.limits, **limits}, where("limits"))
    return PolicySpec(policy_text(policy), policy, both, text.given)


def read_list(kind: type[S], tables: Sequence[Mapping[str, Any]], where: str) -> tuple[S, ...]:
    """Tables such as those of a schedule; a time may be a text such as ``"2h"``.

    >>> table = {"cron": "0 8 * * *", "duration": "2h", "min_executors": 4}
    >>> read_list(ScheduledLimit, [table], "penstock.toml [schedule]")[0].duration_s
    7200.0
    """
    found, keys = [], keys_of(kind)
    required = [each.name for each in fields(kind) if each.required]
    for number, table in enumerate(tables, start=1):
        file, _, name = where.partition(" [")
        place = f"{file} [[{name.removesuffix(']')}]] {number}"
        values = {
            keys.get(key, key): quantity(value, f"{place}: {key}")
            if keys.get(key, "").endswith("_s") and isinstance(value, str)
            else value
            for key, value in table.items()
        }
        for key in required:
            if key not in values:
                raise ConfigError(f"{place} has no {key.removesuffix('_s')}")
        found.append(convert(kind, values, place))
    return tuple(found)


def with_cluster(spec: PolicySpec, cluster: Cluster, given: Set[str]) -> PolicySpec:
    """The spec with what suits that kind of cluster, except for what is `given`.

    >>> spec = with_cluster(read_policy_spec("penstock"), "cloud", set())
    >>> spec.limits.min_lifetime_s, spec.policy.assumed_startup_s
    (300.0, 120.0)
    """
    values = {key: value for key, value in CLUSTERS[cluster].items() if key not in given}
    around = {key: value for key, value in values.items() if hasattr(spec.limits, key)}
    own = {key: value for key, value in values.items() if hasattr(spec.policy, key)}
    if own and dataclasses.is_dataclass(spec.policy):
        spec = dataclasses.replace(spec, policy=dataclasses.replace(spec.policy, **own))
    return dataclasses.replace(spec, limits=replace(spec.limits, **around))


def with_limits(spec: PolicySpec, limits: Limits | Mapping[str, Any] | None) -> PolicySpec:
    """The spec with other limits: some, by their names, or all of them as `Limits`."""
    if limits is None:
        return spec
    if isinstance(limits, Limits):
        return dataclasses.replace(spec, limits=limits)
    if not isinstance(limits, Mapping):
        raise ConfigError(f'limits must be a table such as {{"cooldown_s": 60.0}}, not {limits!r}')
    keys, given = keys_of(Limits), {}
    for key, value in limits.items():
        if key not in keys:
            raise unknown("limit", str(key), set(keys.values()), "limits")
        given[keys[key]] = quantity(value, key) if isinstance(value, str) else value
    return dataclasses.replace(spec, limits=convert(Limits, asdict(spec.limits) | given, "limits"))


def convert(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """A typed value from plain data, or one sentence: what, where, which value, what is allowed.

    >>> convert(Limits, {"max_executors": "many"}, "penstock.toml [limits]")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: penstock.toml [limits]: max_executors = 'many': expected int,
        got str
    """
    known = signature(kind).parameters
    for key in values:
        if key not in known:
            raise unknown("key", key, known, where)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error), values, where)) from None
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _sentence(message: str, values: Mapping[str, Any], where: str) -> str:
    """Msgspec's words with the key and the value that they are about."""
    what, _, path = message.partition(" - at ")
    keys = re.findall(r"[^.$\[\]`]+", path)
    value: Any = values
    for key in keys:
        value = value[int(key)] if isinstance(value, list | tuple) else value.get(key)
    what = what[0].lower() + what[1:].replace("`", "")
    return f"{where}: {'.'.join(keys)} = {value!r}: {what}" if keys else f"{where}: {what}"
