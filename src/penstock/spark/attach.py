"""Penstock inside a driver: one line to start it, and a handle to it.

::

    import penstock

    with penstock.attach(spark, policy="ds2:cooldown=60s", min=2, max=8, slo_s=10):
        query = stream.writeStream.start()
        query.awaitTermination()

The work is done in a thread (`scaling`). Light to import: PySpark is loaded by `attach` itself.
"""

from __future__ import annotations

import atexit
import dataclasses
import logging
import threading
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.core.errors import ConfigError
from penstock.core.journal import FileJournal
from penstock.core.protocols import Policy
from penstock.observe.formatting import sentence
from penstock.settings import toml
from penstock.settings.goal import Goal, QueryGoal
from penstock.settings.notation import quantity
from penstock.settings.policy_spec import with_goal
from penstock.settings.spark_conf import layers
from penstock.settings.toml import LiveSettings, Mode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.actuator.actuator import Patience
    from penstock.spark.changes import SettingsSource

State = Literal["running", "paused", "stopped", "failed"]

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 30.0
#: Attachments that nobody called `attach` for (`launch.attach_configured`), by application.
CONFIGURED: dict[str, Attachment] = {}


def attach(
    spark: SparkSession,
    policy: str | Policy | None = None,
    *,
    min: int | None = None,  # noqa: A002
    max: int | None = None,  # noqa: A002
    slo_s: float | str | None = None,
    mode: Mode | None = None,
    journal: str | Path | FileJournal | None = None,
    every_s: float | str | None = None,
    admission: bool | None = None,
    limits: Mapping[str, Any] | None = None,
    patience: Patience | None = None,
    switch: str | Path | None = None,
    cluster: toml.Cluster | None = None,
    metrics: str | None = None,
    spark_metrics: bool | None = None,
    opentelemetry: bool | None = None,
    dashboard: str | None = None,
    log: Literal["text", "json"] | None = None,
    webhook: str | None = None,
    commit_offsets_to: str | None = None,
    price: float | None = None,
    core_price: float | None = None,
    gb_price: float | None = None,
    currency: str | None = None,
    max_cost_per_day: float | None = None,
    queries: Mapping[str, Mapping[str, Any]] | None = None,
) -> Attachment:
    """Scale the streaming queries of a Spark application from inside its driver.

    Input that cannot work (Spark Connect, ``local[*]``, real-time mode, ...) is a `ConfigError`
    now; whatever fails later is logged, and the job continues. What is not given here is taken from
    the Spark configuration (``spark.penstock.*``), then from ``penstock.toml``.

    Parameters
    ----------
    spark: The session of the application; its queries may start before or after.
    policy: A text of ``penstock policies`` such as ``"ds2:cooldown=60s"``, with parameters and
        limits as ``key=value``; or a policy object. By default ``penstock``.
    min, max: Bounds of the fleet, in executors; by default 1 and 16. What the policy text sets
        itself wins over them.
    slo_s: A record that waits longer is late: seconds, or a text such as ``"10s"``, the default. A
        policy text that sets ``slo`` itself keeps it.
    mode: ``act``, the default, changes the fleet; ``recommend`` says what it would do and moves
        nothing.
    journal: Where each turn is written: a file, or a folder in a store such as
        ``"s3a://bucket/jobs"``. A journal that exists is read first: the policy continues from what
        it knew.
    every_s: Seconds between decisions; by default what the policy asks for.
    admission: Cap each batch to what the fleet gets through in time (`admission`).
    limits: Further limits that the guards enforce, such as ``{"cooldown_s": 60.0}``. They win over
        the policy text, and over `min` and `max`.
    patience: How long to wait for executors to come and go.
    switch: A file that says ``pause``, ``recommend`` or ``act``, read while the job runs; while it
        is not there, `mode` holds.
    cluster: ``fast`` (the default), ``cloud`` or ``on-premise``: how long executors are kept, and
        how long they are assumed to take to start until some have been seen to.
    metrics, spark_metrics, opentelemetry: HOST:PORT at which the driver serves metrics for
        Prometheus, such as ``"127.0.0.1:9404"``; whether Spark's own metrics system gets them too,
        and a collector of OpenTelemetry.
    dashboard: HOST:PORT at which the driver serves a live page, such as ``"127.0.0.1:4041"``.
    log, webhook: ``json`` for a log of JSON lines; an http(s) address that gets rescales, refusals,
        loss of sight and lack of room.
    commit_offsets_to: A consumer group that gets the processed offsets of Kafka sources, for tools
        that show its lag; ``{query}`` stands for the name of the query.
    price, core_price, gb_price, currency, max_cost_per_day: Of one executor-hour, or of one
        core-hour and one GB-hour of memory; what the fleet of a day (UTC) may cost, as far as `min`
        allows.
    queries: What is asked of single queries, by name: ``{"clicks": {"slo": "5s", "weight": 2.0},
        "audit": {"exclude": True}}``.
    """
    file = None if switch is None else str(switch)
    wanted = {"mode": mode, "every_s": _seconds("every_s", every_s), "admission": admission}
    outlets = {"metrics": metrics, "spark_metrics": spark_metrics, "log": log, "webhook": webhook}
    outlets |= {"dashboard": dashboard, "commit_offsets_to": commit_offsets_to}
    outlets["opentelemetry"] = opentelemetry
    prices = {"price": price, "core_price": core_price, "gb_price": gb_price}
    money = {**prices, "currency": currency, "max_cost_per_day": max_cost_per_day}
    tables = {
        "limits": _given(min_executors=_whole("min", min), max_executors=_whole("max", max)),
        "goal": _given(slo_s=_seconds("slo_s", slo_s), **money),
        "live": _given(**wanted, **outlets, cluster=cluster, switch=file),
        **_given(query=_queries(queries)),
    }
    # A mistake in an argument is named as such.
    LiveSettings(**tables["live"])
    toml.convert(Goal, tables["goal"], "attach")
    if not isinstance(journal, str | Path | FileJournal | None):
        raise ConfigError(f"journal must be the path of a file, not {journal!r}")
    settings = toml.settle(layers(_session_conf(spark), options=tables), policy)
    _stop_configured(spark)
    settings = dataclasses.replace(settings, spec=toml.with_limits(settings.spec, limits))
    return Attachment(spark, settings, journal=journal, patience=patience)


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
    account: str = ""  # in mode recommend, what acting would have saved so far


class Attachment:
    """A running scaler. Leaving it as a context manager stops it; the fleet stays as it is."""

    def __init__(
        self,
        spark: SparkSession,
        settings: toml.Settings,
        *,
        journal: str | Path | FileJournal | None = None,
        patience: Patience | None = None,
        source: SettingsSource | None = None,
    ) -> None:
        try:
            from penstock.spark.claim import FleetClaim
            from penstock.spark.internals import Driver
            from penstock.spark.scaling import ScalingLoop
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"attach needs PySpark, and there is no module {error.name}: "
                "pip install 'penstock[spark]'"
            ) from None
        _check_session(spark)
        self._policy = settings.spec.label
        claim = FleetClaim(Driver(spark))
        if settings.live.mode == "act":
            claim.take()
        try:
            self._loop = ScalingLoop(spark, settings, claim, journal, patience, source)
        except BaseException:
            claim.release()
            raise
        self._thread = threading.Thread(target=self._loop.run, name="penstock", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def status(self) -> Status:
        """The state of the scaler and its job, as of the last turn; does not ask Spark."""
        loop = self._loop
        step = loop.steps[-1] if loop.steps else None
        seen, actuator = step.snapshot if step else None, loop.actuator
        return Status(
            state=self._state(),
            mode="recommend" if loop.actuator is None else "act",
            policy=self._policy,
            target=actuator.target if actuator else (seen.fleet.target if seen else None),
            registered=seen.fleet.registered if seen else None,
            active=seen.fleet.active if seen else None,
            is_settled=actuator.is_settled if actuator else True,
            delay_s=seen.delay_s if seen else None,
            backlog_records=seen.backlog_records if seen else None,
            decisions=loop.decisions,
            rescales=loop.rescales,
            repairs=actuator.repairs if actuator else 0,
            losses=actuator.losses if actuator else 0,
            last=sentence(step) if step else "",
            error=loop.error,
            account=loop.account(),
        )

    def explain(self, last: int = 5) -> list[str]:
        """The last decisions in words, oldest first."""
        return [sentence(step) for step in list(self._loop.steps)[-last:]] if last > 0 else []

    def pause(self) -> None:
        """Decide nothing until `resume`; a rescale that has begun is completed."""
        self._loop.is_paused.set()

    def resume(self) -> None:
        """Decide again, at once if a turn is due."""
        self._loop.is_paused.clear()

    def update(
        self,
        *,
        min: int | None = None,  # noqa: A002
        max: int | None = None,  # noqa: A002
        slo_s: float | str | None = None,
        mode: Mode | None = None,
        limits: Mapping[str, Any] | None = None,
        queries: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Change bounds, SLO, mode or other limits while it runs, from the next decision on.

        `queries` replaces what was asked of single queries before.

        What cannot work is a `ConfigError`, and nothing changes. A journal begins a new file, whose
        header has the new limits.
        """
        loop = self._loop
        given = dict(limits or {})
        given |= _given(min_executors=_whole("min", min), max_executors=_whole("max", max))
        spec, goal = toml.with_limits(loop.spec, given), loop.goal
        if slo_s is not None:
            goal = replace(goal, slo_s=_seconds("slo_s", slo_s))
            if dataclasses.is_dataclass(spec.policy):
                policy = with_goal(spec.policy, goal, spec.given)
                spec = dataclasses.replace(spec, policy=policy)
        if (asked := _queries(queries)) is not None:
            goal = replace(goal, queries=toml.read_list(QueryGoal, asked, "update [queries]"))
        from penstock.spark.changes import Change

        live = LiveSettings(mode=loop.mode if mode is None else mode)
        named = {"slo_s": slo_s, "mode": mode, "queries": queries, **given}
        words = ", ".join(f"{key} = {value}" for key, value in named.items() if value is not None)
        if not words:
            raise ConfigError("update needs something to change, such as max, mode or limits")
        loop.update(Change(spec, goal, live.mode, words))

    def stop(self) -> None:
        """Let go: the fleet stays as it is, changed settings are restored. May be repeated."""
        self._loop.stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_TIMEOUT_S)
        self._loop.outlets.close()
        atexit.unregister(self.stop)

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _state(self) -> State:
        if self._loop.error:
            return "failed"
        if not self._thread.is_alive() or self._loop.stopping.is_set():
            return "stopped"
        return "paused" if self._loop.is_on_hold() else "running"


def _stop_configured(spark: SparkSession) -> None:
    """Stop the attachment that Spark's configuration asked for: what a script says wins."""
    application = getattr(getattr(spark, "sparkContext", None), "applicationId", "")
    if (by_conf := CONFIGURED.pop(application, None)) is not None:
        by_conf.stop()
        log.info("what attach says replaces the attachment by Spark's configuration")


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _session_conf(spark: Any) -> dict[str, str]:
    """The Spark configuration of the session; empty if it is none, which is refused later."""
    if not hasattr(spark, "streams") or getattr(getattr(spark, "_sc", None), "_jsc", 0) is None:
        return {}
    from penstock.spark.internals import Driver

    return Driver(spark).session_settings()


def _queries(queries: Any) -> list[dict[str, Any]] | None:
    """What is asked of queries as the tables of a settings file; ``None`` stays."""
    if queries is None:
        return None
    try:
        return [{**table, "name": name} for name, table in queries.items()]
    except (AttributeError, TypeError):
        example = '{"clicks": {"slo": "5s"}}'
        raise ConfigError(f"queries must be tables by name: {example}, not {queries!r}") from None


def _whole(name: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name} must be a whole number of executors, not {value!r}")
    return value


def _seconds(name: str, value: object) -> float | None:
    """A positive number of seconds, or the text of one; ``None`` stays.

    >>> _seconds("slo_s", "2min"), _seconds("slo_s", 10)
    (120.0, 10.0)
    """
    if value is None:
        return None
    seconds = quantity(value, name) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < inf:
        raise ConfigError(f"{name} must be a positive number of seconds, not {value!r}")
    return float(seconds)


def _check_session(spark: object) -> None:
    """Refuse what is no session, and one that has been stopped."""
    if not hasattr(spark, "streams"):
        raise ConfigError(f"spark must be a SparkSession, not {spark!r}")
    context = getattr(spark, "_sc", None)
    if context is not None and context._jsc is None:
        raise ConfigError("the Spark session is stopped: attach to a running one")
