"""Settings written as Spark writes its own: ``spark.penstock.*`` beside ``penstock.toml``.

Each key stands for one of the file: ``spark.penstock.maxExecutors`` for ``max_executors`` in
``[limits]``. Options and arguments win over the Spark configuration, that over the file.

>>> read_spark_conf({"spark.penstock.policy": "static:4", "spark.penstock.slo": "20s"})
{'policy': {'name': 'static:4'}, 'goal': {'slo_s': 20.0}}
>>> read_spark_conf({"spark.penstock.maxExecutor": "8"})
Traceback (most recent call last):
penstock.core.errors.ConfigError: unknown key 'spark.penstock.maxExecutor' in the Spark
    configuration: did you mean 'spark.penstock.maxExecutors'? Known: ...
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import asdict

from penstock.core.errors import ConfigError, unknown
from penstock.core.model import Limits
from penstock.settings.goal import Goal, QueryGoal
from penstock.settings.notation import keys_of, read_field
from penstock.settings.toml import (
    FILE_NAME,
    JournalSettings,
    LiveSettings,
    Overrides,
    Settings,
    read_tables,
)

PREFIX = "spark.penstock."
#: Whether a script that does not import Penstock is scaled, and the file with further settings.
ENABLED, CONFIG = f"{PREFIX}enabled", f"{PREFIX}config"
CONF = "the Spark configuration"
_LISTS = {"schedule": "schedule", "query": "queries"}  #: Lists of tables, and their fields.
_TABLES = {"limits": Limits, "goal": Goal, "live": LiveSettings, "journal": JournalSettings}


def _key(table: str, field: str) -> str:
    """The key of a setting: ``max_executors`` is ``spark.penstock.maxExecutors``."""
    first, *rest = field.removesuffix("_s").split("_")
    within = "journal." if table == "journal" else ""
    return PREFIX + within + first + "".join(word.title() for word in rest)


#: The table and the field that each key stands for.
KEYS = {_key(name, at): (name, at) for name in _TABLES for at in keys_of(_TABLES[name]).values()}
KEYS[f"{PREFIX}journal"] = KEYS.pop(f"{PREFIX}journal.path")
KEYS[f"{PREFIX}policy"] = ("policy", "name")
del KEYS[f"{PREFIX}queries"]  # each query has keys of its own
#: ``spark.penstock.query.NAME.slo`` and so on; a name may have dots.
QUERY_KEY = re.compile(rf"{re.escape(PREFIX)}query\.(.+)\.(slo|weight|exclude)")


def read_spark_conf(conf: Mapping[str, str]) -> dict[str, Any]:
    """The settings in a Spark configuration, by table and key of ``penstock.toml``."""
    if (enabled := conf.get(ENABLED, "true")).lower() not in ("true", "false"):
        raise ConfigError(f"{ENABLED} must be true or false, not '{enabled}'")
    tables: dict[str, Any] = {}
    queries: dict[str, dict[str, Any]] = {}
    for key, text in conf.items():
        if not key.startswith(PREFIX) or key in (ENABLED, CONFIG):
            continue
        if (of_query := QUERY_KEY.fullmatch(key)) is not None:
            field = keys_of(QueryGoal)[of_query[2]]
            value = read_field(QueryGoal, field, text, key)
            queries.setdefault(of_query[1], {"name": of_query[1]})[field] = value
            continue
        if key not in KEYS:
            raise unknown("key", key, {*KEYS, ENABLED, CONFIG}, CONF)
        table, field = KEYS[key]
        value = read_field(_TABLES[table], field, text, key) if table in _TABLES else text
        tables.setdefault(table, {})[field] = value
    return tables | ({"query": list(queries.values())} if queries else {})


def layers(
    conf: Mapping[str, str], config: Path | None = None, options: Overrides | None = None
) -> dict[str, Overrides]:
    """Where settings come from, the weakest first; a file that nobody names may be absent."""
    path, is_named = file_of(conf, config), config is not None or CONFIG in conf
    file = {str(path): read_tables(path)} if is_named or path.is_file() else {}
    own = read_spark_conf(conf)
    found: dict[str, Overrides] = {**file, CONF: own, "options": options or {}}
    if any({"core_price", "gb_price"} & {*tables.get("goal", {})} for tables in found.values()):
        own["goal"] = executor_size(conf) | own.get("goal", {})
    return found


def executor_size(conf: Mapping[str, str]) -> dict[str, float]:
    """Cores and memory of an executor, as far as Spark's own settings say.

    The overhead is that of YARN and Kubernetes: a tenth of the heap, at least 384 MB.

    >>> executor_size({"spark.master": "yarn", "spark.executor.memory": "8g"})
    {'executor_cores': 1.0, 'executor_memory_gb': 8.8}
    >>> executor_size({"spark.master": "spark://host:7077", "spark.executor.memory": "512m"})
    {'executor_memory_gb': 0.5}
    """
    is_managed = conf.get("spark.master", "").startswith(("yarn", "k8s:"))
    cores = conf.get("spark.executor.cores", "1" if is_managed else "")
    memory_gb = _gb(conf.get("spark.executor.memory", "1g"))
    if is_managed:
        factor = conf.get("spark.kubernetes.memoryOverheadFactor", "0.1")
        factor = conf.get("spark.executor.memoryOverheadFactor", factor)
        overhead = f"{max(384, round(1024 * memory_gb * float(factor)))}m"
        memory_gb += _gb(conf.get("spark.executor.memoryOverhead", overhead))
        memory_gb += _gb(conf.get("spark.executor.pyspark.memory", "0"))
    size = {"executor_cores": float(cores)} if cores.isdigit() else {}
    return size | {"executor_memory_gb": round(memory_gb, 3)}


def _gb(text: str) -> float:
    """A size as Spark writes it, in MB without a unit; zero if it is none."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text.strip().lower())
    return int(found[1]) * 1024.0 ** ("kmgt".index(found[2] or "m") - 2) if found else 0.0


def file_of(conf: Mapping[str, str], config: Path | None = None) -> Path:
    """The settings file: `config`, else what the Spark configuration names, else the usual one."""
    return config or Path(conf.get(CONFIG, FILE_NAME))


def origins(settings: Settings, layers: Mapping[str, Overrides]) -> dict[str, dict[str, Any]]:
    """Each setting with its value, by the place that it comes from."""
    spec = settings.spec
    parts = (spec.limits, settings.goal, settings.live, settings.journal)
    values: dict[tuple[str, str], Any] = {("policy", "policy"): spec.label}
    for table, part in zip(_TABLES, parts, strict=True):
        values |= {(table, field): value for field, value in asdict(part).items()}
    found: dict[str, dict[str, Any]] = {}
    for (table, field), value in values.items():
        is_own = table == "limits" and field in spec.given
        place = "the policy text" if is_own else "defaults"
        for name, tables in layers.items():
            given = {*tables.get(table, {}), *(_LISTS[each] for each in tables.keys() & _LISTS)}
            if field in given or (table == "policy" and tables.get(table)):
                place = name
        if field == "webhook" and value:  # the rest of the address may hold a secret
            value = f"{value.partition('://')[0]}://{urlsplit(value).hostname}/..."
        found.setdefault(place, {})["journal." * (table == "journal") + field] = value
    return found
