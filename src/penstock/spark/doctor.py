"""Checks the settings of an application before it is scaled, and says what to change.

Checks are functions from settings to findings; `examine` runs them all. ``penstock doctor`` runs
them on a script, which it reads without running it; `attach` on the running application.

>>> settings = {"spark.master": "local[4]"}
>>> for finding in examine(Application(settings)):
...     if finding.level == "error":
...         print(finding.reason, "->", finding.change)
local[4] runs everything in one process, which cannot grow -> --master spark://HOST:7077, yarn or
    k8s://https://HOST:PORT
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from msgspec import Struct

from penstock.core.errors import ConfigError
from penstock.core.files import file_errors
from penstock.core.phrases import counted, executors
from penstock.settings.notation import quantity

Level = Literal["ok", "warning", "error"]
Manager = Literal["standalone", "yarn", "kubernetes", "local", "unknown"]

SLOW_REATTEMPT_S = 5.0  #: Above this, a decommissioned executor stays long after it could leave.
#: Calls that set one setting: `SparkSession.builder.config(k, v)`, `SparkConf().set(k, v)`.
_SETTERS = {"config", "set", "setIfMissing"}
_MORE_WORKERS = dict.fromkeys(get_args(Manager), "add workers, raise spark.cores.max, or lower max")
#: What to do where a cluster has no more executors, by its manager.
HOW_TO_GET_MORE = _MORE_WORKERS | {
    "yarn": "add nodes, raise the capacity of the queue, or lower max",
    "kubernetes": "add nodes, raise the quota of the namespace, or lower max; "
    "kubectl describe says what a pending pod waits for",
}


class Finding(Struct, frozen=True):
    """The result of one check: level, reason, and the exact setting to change."""

    check: str
    level: Level
    reason: str
    change: str = ""


class FailureLimit(Struct, frozen=True):
    """Spark ends the application when this number of executors has failed, within an interval."""

    executors: int
    within_s: float | None = None


class Application(Struct, frozen=True):
    """The settings of an application, the bounds of its fleet and the triggers of its queries."""

    conf: Mapping[str, str]
    min_executors: int = 1
    max_executors: int = 16
    triggers: tuple[str, ...] = ()

    @property
    def manager(self) -> Manager:
        """The cluster manager.

        >>> Application({"spark.master": "local-cluster[2,1,1024]"}).manager
        'standalone'
        """
        master = self.conf.get("spark.master", "")
        if master.startswith(("spark://", "local-cluster[")):
            return "standalone"
        if master.startswith("k8s://"):
            return "kubernetes"
        if master.startswith("yarn"):
            return "yarn"
        return "local" if master.startswith("local") else "unknown"

    @property
    def executor_cores(self) -> int | None:
        """Cores of one executor; ``None`` where the cluster decides."""
        cores = self.conf.get("spark.executor.cores")
        if cores is not None and cores.isdigit():
            return int(cores)
        return 1 if self.manager in ("yarn", "kubernetes") else None

    @property
    def failure_limit(self) -> FailureLimit | None:
        """How many executors may fail; ``None`` where there is no limit.

        >>> settings = {"spark.master": "yarn", "spark.executor.instances": "4"}
        >>> Application(settings).failure_limit
        FailureLimit(executors=8, within_s=None)
        >>> Application(settings | {"spark.dynamicAllocation.enabled": "true"}).failure_limit
        """
        if self.manager not in ("yarn", "kubernetes"):
            return None
        size = self.conf.get("spark.executor.instances", "0")
        if self.is_on("spark.dynamicAllocation.enabled"):
            size = self.conf.get("spark.dynamicAllocation.maxExecutors", "")  # no maximum
        by_size = str(max(3, 2 * int(size))) if size.isdigit() else ""
        on_yarn = self.conf.get("spark.yarn.max.executor.failures", by_size)
        limit = self.conf.get("spark.executor.maxNumFailures", on_yarn)
        within = self.conf.get("spark.executor.failuresValidityInterval", "")
        within += "ms" if within.isdigit() else ""
        return FailureLimit(int(limit), _seconds(within)) if limit.isdigit() else None

    def is_on(self, key: str) -> bool:
        return self.conf.get(key, "false").strip().lower() == "true"


Check = Callable[[Application], Iterator[Finding]]


def examine(application: Application) -> list[Finding]:
    """All findings, in the order in which to fix them."""
    return [finding for check in CHECKS for finding in check(application)]


def refuse_errors(findings: Sequence[Finding]) -> None:
    """Raise the first error among them as one sentence."""
    for finding in findings:
        if finding.level == "error":
            raise ConfigError(f"{finding.reason}: {finding.change}")


def connect(application: Application) -> Iterator[Finding]:
    remote = application.conf.get("spark.remote")
    if remote is None and application.conf.get("spark.api.mode", "classic") != "connect":
        return
    where = f"the client of {remote}" if remote else "a client"
    reason = f"{where} uses Spark Connect, which cannot see or change executors"
    change = "run the script in the driver itself (spark.api.mode=classic, no spark.remote)"
    yield Finding("connect", "error", reason, change)


def master(application: Application) -> Iterator[Finding]:
    name = application.conf.get("spark.master")
    if application.manager == "local":
        reason = f"{name} runs everything in one process, which cannot grow"
        change = "--master spark://HOST:7077, yarn or k8s://https://HOST:PORT"
        yield Finding("master", "error", reason, change)
    elif name is None:
        yield Finding("master", "warning", "no master is set here", "--master spark://HOST:7077")
    elif application.manager == "unknown":
        reason = f"{name} is no cluster manager that Penstock knows"
        yield Finding("master", "warning", reason, "--master spark://..., yarn or k8s://...")
    else:
        yield Finding("master", "ok", f"{name}: executors can be added and removed")


def triggers(application: Application) -> Iterator[Finding]:
    for trigger in application.triggers:
        if trigger in UNSCALABLE:
            yield Finding("trigger", "error", *UNSCALABLE[trigger])


def room(application: Application) -> Iterator[Finding]:
    """Whether the application may have as many cores as the fleet needs."""
    cap, cores = application.conf.get("spark.cores.max", ""), application.executor_cores
    if application.manager != "standalone" or not cap.isdigit() or cores is None:
        return
    least, most, given = application.min_executors, application.max_executors, int(cap) // cores
    gives = f"spark.cores.max={cap} gives {given}"
    if given < least:
        change = f"set spark.cores.max={least * cores} or lower min"
        yield Finding("room", "error", f"min is {executors(least)} and {gives}", change)
    elif given < most:
        reason = f"max is {executors(most)} and {gives}"
        yield Finding("room", "warning", reason, f"spark.cores.max={most * cores}")
    else:
        yield Finding("room", "ok", f"spark.cores.max={cap} gives up to {executors(given)}")


def executor_size(application: Application) -> Iterator[Finding]:
    if application.manager == "standalone" and application.executor_cores is None:
        reason = "without it, one executor takes a whole worker"
        yield Finding("executor_size", "warning", reason, "spark.executor.cores=1")
    elif application.executor_cores is not None:
        reason = f"each executor has {counted(application.executor_cores, 'core')}"
        yield Finding("executor_size", "ok", reason)


def dynamic_allocation(application: Application) -> Iterator[Finding]:
    if application.is_on("spark.dynamicAllocation.enabled"):
        reason = "Spark's own scaler is on; Penstock stops it when it attaches in mode act"
        yield Finding("dynamic_allocation", "ok", reason)
    elif application.manager == "standalone":
        reason = "the application starts at its largest size, which only mode act then reduces"
        least, name = application.min_executors, "spark.dynamicAllocation"
        change = f"{name}.enabled=true {name}.initialExecutors={least} {name}.minExecutors={least}"
        yield Finding("dynamic_allocation", "warning", reason, change)
    else:
        yield Finding("dynamic_allocation", "ok", "Spark's own scaler is off")


def decommission(application: Application) -> Iterator[Finding]:
    if not application.is_on("spark.decommission.enabled"):
        reason = "executors can only be killed between two batches, not decommissioned"
        yield Finding("decommission", "warning", reason, "spark.decommission.enabled=true")
        return
    prefix = "spark.storage.decommission"
    keys = (f"{prefix}.enabled", f"{prefix}.shuffleBlocks.enabled")
    missing = [key for key in keys if not application.is_on(key)]
    if missing:
        reason = "the shuffle files of an executor are lost when it leaves, and stages run again"
        yield Finding("decommission", "warning", reason, " ".join(f"{k}=true" for k in missing))
    else:
        yield Finding("decommission", "ok", "executors hand over their files before they leave")
    key = "spark.storage.decommission.replicationReattemptInterval"
    interval = application.conf.get(key, "30s")
    if (seconds := _seconds(interval)) is not None and seconds > SLOW_REATTEMPT_S:
        reason = f"a decommissioned executor checks only every {interval} whether it may leave"
        yield Finding("decommission_interval", "warning", reason, f"{key}=2s")


def locality(application: Application) -> Iterator[Finding]:
    keys = [f"spark.locality.wait.{level}" for level in ("process", "node", "rack")]
    if fixed := [key for key in keys if key in application.conf]:
        reason = "new executors get no stateful work while this wait is set on its own"
        yield Finding("locality", "warning", reason, f"remove {', '.join(fixed)}")
    else:
        yield Finding("locality", "ok", "state can move to new executors")


def failures(application: Application) -> Iterator[Finding]:
    limit, enough = application.failure_limit, max(3, 2 * application.max_executors)
    if limit is None:
        return
    reason = f"Spark ends the application after {counted(limit.executors, 'failed executor')}"
    changes = []
    if limit.executors < enough:
        reason += f", of a fleet of up to {application.max_executors}"
        changes.append(f"spark.executor.maxNumFailures={enough}")
    if limit.within_s is None:
        reason += ", however long ago they failed"
        changes.append("spark.executor.failuresValidityInterval=1h")
    yield Finding("failures", "warning" if changes else "ok", reason, " ".join(changes))


def allocator(application: Application) -> Iterator[Finding]:
    key = "spark.kubernetes.allocation.pods.allocator"
    kind = application.conf.get(key, "direct")
    if application.manager == "kubernetes" and kind != "direct":
        reason = f"the allocator {kind} chooses itself which executors to remove"
        yield Finding("allocator", "error", reason, f"{key}=direct")


def speculation(application: Application) -> Iterator[Finding]:
    if application.is_on("spark.speculation"):
        reason = "copies of slow tasks keep executors busy and write state twice"
        yield Finding("speculation", "warning", reason, "spark.speculation=false")


def parallelism(application: Application) -> Iterator[Finding]:
    partitions = application.conf.get("spark.sql.shuffle.partitions", "200")
    cpus = application.conf.get("spark.task.cpus", "1")
    tasks = (application.executor_cores or 1) // (int(cpus) if cpus.strip("0").isdigit() else 1)
    slots = application.max_executors * tasks
    if partitions.isdigit() and int(partitions) < slots:
        reason = f"{partitions} state partitions cannot use the {slots} slots of max executors"
        change = f"spark.sql.shuffle.partitions={slots} (before the first start) or a lower max"
        yield Finding("parallelism", "warning", reason, change)


CHECKS: tuple[Check, ...] = (
    connect,
    master,
    triggers,
    room,
    executor_size,
    dynamic_allocation,
    decommission,
    locality,
    failures,
    allocator,
    speculation,
    parallelism,
)

USE_BATCHES = "use trigger(processingTime=...)"
#: Triggers of queries that cannot be scaled: why not, and what to do.
UNSCALABLE: dict[str, tuple[str, str]] = {
    "realTime": (
        "a query in real-time mode holds all its tasks at once and cannot be resized",
        f"{USE_BATCHES}, or give it its full size without Penstock",
    ),
    "continuous": ("a query in continuous mode has no batches to scale by", USE_BATCHES),
}
for _ends in ("availableNow", "once"):
    _reason = f"a query with trigger {_ends} ends by itself"
    UNSCALABLE[_ends] = _reason, f"{USE_BATCHES}, or run it without Penstock"


def _seconds(duration: str) -> float | None:
    """A duration as Spark writes it, maybe without a unit; ``None`` if it is none."""
    try:
        return quantity(duration)
    except ConfigError:
        return None


class Script(Struct, frozen=True):
    """The settings and triggers of a script, and whether it starts a query."""

    conf: dict[str, str] = {}
    hidden: tuple[str, ...] = ()  #: Keys whose values the script computes.
    triggers: tuple[str, ...] = ()
    starts_query: bool = False


def read_script(path: Path) -> Script:
    """The script in a file, or one sentence on why it cannot be read."""
    try:
        with file_errors(f"cannot read {path}"):
            text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    try:
        return parse_script(text)
    except SyntaxError as error:
        where = f"line {error.lineno}" if error.lineno else "its text"
        raise ConfigError(f"{path} is not Python: {error.msg} ({where})") from None


def parse_script(text: str) -> Script:
    """Read a script's calls.

    >>> found = parse_script('''
    ... spark = SparkSession.builder.master("spark://h:7077").config("spark.cores.max", cores)
    ... stream.writeStream.trigger(availableNow=True).start()
    ... ''')
    >>> found.conf, found.hidden, found.triggers, found.starts_query
    ({'spark.master': 'spark://h:7077'}, ('spark.cores.max',), ('availableNow',), True)
    """
    conf: dict[str, str] = {}
    hidden: list[str] = []
    triggers: list[str] = []
    starts = False
    for call in ast.walk(ast.parse(text)):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        method = call.func.attr
        if method in ("start", "toTable"):
            starts = starts or "writeStream" in ast.dump(call.func)
        elif method == "trigger":
            triggers += [each.arg for each in call.keywords if each.arg is not None]
        for key, value in _settings(method, call):
            if (literal := _literal(value)) is None:
                hidden.append(key)
            else:
                conf[key] = literal
    # A writer may be kept in a variable: any mention counts.
    starts = starts or ("writeStream" in text and ".start(" in text)
    return Script(conf, tuple(hidden), tuple(dict.fromkeys(triggers)), starts)


def _settings(method: str, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """The keys that a call sets, and the expressions of their values."""
    first = call.args[0] if call.args else None
    if method in ("master", "setMaster", "remote") and first is not None:
        yield ("spark.remote" if method == "remote" else "spark.master"), first
    elif method in _SETTERS and len(call.args) == 2:
        key = _literal(call.args[0])
        if key is not None and key.startswith("spark."):
            yield key, call.args[1]
    for keyword in call.keywords:
        if method == "config" and keyword.arg == "map" and isinstance(keyword.value, ast.Dict):
            for name, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                if name is not None and (named := _literal(name)) is not None:
                    yield named, value


def _literal(node: ast.expr) -> str | None:
    if not isinstance(node, ast.Constant):
        return None
    value = node.value
    return str(value).lower() if isinstance(value, bool) else str(value)
