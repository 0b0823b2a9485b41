"""At which settings each policy of the table takes part in the results, and why at those.

Each is there at its published setting. Each but the default policy is there at one more: the one
that `penstock tune` finds for it on the kind of load and the engine at hand, which docs/tune.py
keeps in docs/tuned.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from penstock.policies import DEFAULT_POLICY, POLICIES
from penstock.settings.policy_spec import read_policy_spec

TUNED = Path(__file__).parent / "tuned.json"
ENGINES = ("micro-batch", "continuous")
#: The same bounds for all: else it is them that is compared.
BOUNDS = {"min_executors": 1, "max_executors": 16}

#: Kinds of loads. A policy is tuned for each by itself, as one would for a job.
SMOOTH = ("sine:period=3h", "koper-q1", "koper-q3", "koper-q11", "daedalus-wordcount", "diurnal")
HARD = ("pyramid", "square:high=100k", "flash_crowd", "bursts", "random_walk", "spikes")
FAMILIES = ("smooth", "hard", "recorded")


class Published(NamedTuple):
    """The settings at which a policy was published, and where that is said."""

    settings: tuple[str, ...]
    source: str


KOPER = "least latency plus workers, summed over the three queries of Koper 2022, tables 5.1 to 5.3"
#: Policies that are not listed take part at their defaults: see their References in policies.md.
PUBLISHED = {
    "static": Published(("static:12",), "the static baseline of Daedalus: 12 workers"),
    "hpa": Published(
        ("hpa:cpu_target=0.5", "hpa:cpu_target=0.8"),
        f"{KOPER} (0.5, 0.7 and 0.9 were tried); 0.8 is the rival of Daedalus",
    ),
    "varga": Published(
        ("varga:utilization_target=0.3",), f"{KOPER} (versions 1 and 2 at 0.3, 0.5 and 0.7)"
    ),
    "dhalion_adapted": Published(
        ("dhalion_adapted:latency_threshold=5s",), f"{KOPER} (1, 5 and 10 s were tried)"
    ),
    "ds2": Published(("ds2:overprovisioning=0.66",), f"{KOPER} (0, 0.33 and 0.66 were tried)"),
    "ds2_adapted": Published(
        ("ds2_adapted:overprovisioning=0.66",), f"{KOPER} (0, 0.33 and 0.66 were tried)"
    ),
    "backlog_threshold": Published(
        ("backlog_threshold:low=250k,high=750k",),
        "50 and 150 images of half a second (Russo Russo 2021), in records of 0.1 ms: the same "
        "25 and 75 s of work for one instance",
    ),
    "keda_lag": Published(
        ("keda_lag:lag_threshold=50k",),
        "what an executor processes in 5 s, half the SLO; KEDA's default of 10 is meant for one "
        "message per task",
    ),
}

#: What is searched, each with its range where a quarter to four times the default does not suit.
SEARCHED = {
    "static": ("executors=2..16",),
    "hpa": ("cpu_target=0.4..0.95", "tolerance_up=0.02..0.2", "stabilize_down=30s..10min"),
    "varga": (
        "utilization_target=0.2..0.9", "lag_threshold=10k..500k", "stabilize_down=1min..10min",
    ),
    "dhalion": ("quiet=0.5s..10s", "shrink_fraction=0.05..0.4", "wait=30s..5min"),
    "dhalion_adapted": (
        "latency_threshold=1s..10s", "overprovisioning=0.05..0.8", "shrink_fraction=0.05..0.4",
        "cpu_fraction=0.4..0.9", "cooldown=20s..4min",
    ),
    "ds2": ("overprovisioning=0.05..0.8", "window=20s..3min", "cooldown=20s..4min"),
    "ds2_adapted": (
        "overprovisioning=0.05..0.8", "up_lag=0.5s..5s", "down_lag=0.1s..2s", "cooldown=20s..4min",
    ),
    "conttune": (
        "overprovisioning=0.05..0.8", "low_usage=0.4..0.8", "high_usage=0.6..0.9",
        "most_held_back=0.02..0.2", "window=20s..2min",
    ),
    "throughput_table": (
        "overprovisioning=0.05..0.8", "up_lag=0.5s..8s", "window=20s..2min", "cooldown=20s..4min",
    ),
    "backlog_threshold": ("low=20k..500k", "high=50k..1M", "period=10s..30s"),
    "queueing": ("max_response=0.5s..10s", "relax_fraction=0.3..0.9", "assumed_cv2=0.5..4"),
    "thresholds": ("lower_fraction=0.3..0.6", "upper_fraction=0.6..0.9", "noise=0.001..0.02"),
    "daedalus": (
        "recovery_target=1min..20min", "grace=1min..5min", "lasting=2min..15min", "loop=30s..2min",
    ),
    "phoebe": ("recovery_target=1min..20min", "loop=1min..15min", "indifference=0.01..0.5"),
    "spark_dra": ("allocation_ratio=0.05..1", "idle_timeout=1s..60s", "backlog_timeout=1s..30s"),
    "spark_trigger_dra": (
        "backlog_fraction=0.5..1.5", "idle_fraction=0.1..0.7", "deallocation_ratio=0.05..0.5",
    ),
    "slots_and_queue": (
        "high_utilization=0.65..0.95", "low_utilization=0.3..0.7", "target_utilization=0.5..0.85",
        "most_growth=1.1..3", "window=20s..2min",
    ),
    "dstreams_ratio": ("up_ratio=0.6..1.2", "down_ratio=0.2..0.7", "period=10s..2min"),
    "elastic_scaling": ("smoothing=0.3..0.95", "low_usage=0.4..0.9", "high_usage=0.7..1.2"),
    "keda_lag": ("lag_threshold=5k..200k", "stabilize_down=30s..10min", "tolerance=0.02..0.3"),
    "flink": (
        "utilization_target=0.5..0.9", "boundary=0.05..0.3", "window=1min..15min",
        "stabilization=30s..5min", "catch_up=2min..30min", "restart=10s..5min",
        "scale_down_interval=1min..1h",
    ),
}  # fmt: skip


class Found(Struct, frozen=True):
    """What a search found: the setting, its cost against the defaults on runs it had not seen."""

    family: str
    engine: str
    policy: str
    setting: str
    cost_ratio: float
    command: str


class TunedSettings(Struct, frozen=True):
    """The file: how it was made, and one entry per kind of load, engine and policy."""

    made_with: str
    found: tuple[Found, ...] = ()


class Entry(NamedTuple):
    """A row of a table: what runs, and what it is called."""

    setting: str
    label: str


def published(policy: str) -> tuple[str, ...]:
    return PUBLISHED[policy].settings if policy in PUBLISHED else (policy,)


def read_tuned(path: Path = TUNED) -> TunedSettings:
    """What was found so far; nothing without a file."""
    if not path.exists():
        return TunedSettings("")
    return msgspec.json.decode(path.read_bytes(), type=TunedSettings)


def entries(
    family: str, engine: str, tuned: TunedSettings, policies: Sequence[str] = tuple(POLICIES)
) -> list[Entry]:
    """Each policy at its published settings, and as tuned for these loads where it was.

    A setting that is both is one row. Without a search on recorded days the one on smooth loads
    counts.

    >>> found = Found("smooth", "continuous", "ds2", "ds2:overprovisioning=0.2", 0.9, "")
    >>> entries("recorded", "continuous", TunedSettings("", (found,)), ["penstock", "ds2"])
    [Entry(setting='penstock', label='`penstock`'),
     Entry(setting='ds2:overprovisioning=0.66', label='`ds2:overprovisioning=0.66`'),
     Entry(setting='ds2:overprovisioning=0.2', label='`ds2`, tuned')]
    """
    known = {(one.family, one.engine, one.policy): one.setting for one in tuned.found}
    rows = []
    for policy in policies:
        settings = published(policy)
        own = known.get((family, engine, policy))
        if own is None and family == "recorded":
            own = known.get(("smooth", engine, policy))
        same = [setting for setting in settings if own is not None and _equal(setting, own)]
        for setting in settings:
            also = ", also tuned" if setting in same else ""
            rows.append(Entry(setting, f"`{setting}`{also}"))
        if own is not None and not same:
            rows.append(Entry(own, f"`{policy}`, tuned"))
    return rows


def _equal(one: str, other: str) -> bool:
    """Whether two texts stand for the same: ``static`` and ``static:12`` do."""
    left, right = read_policy_spec(one), read_policy_spec(other)
    return left.policy == right.policy and left.limits == right.limits


def tunable() -> tuple[str, ...]:
    """The policies that are tuned: all but the default one, which is what a user gets."""
    return tuple(policy for policy in POLICIES if policy != DEFAULT_POLICY)
