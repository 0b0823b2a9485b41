"""Settings in a Spark configuration: the same as in penstock.toml, between it and arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.policies.ds2 import Ds2
from penstock.policies.static import Static
from penstock.settings.spark_conf import KEYS, layers, origins, read_spark_conf
from penstock.settings.toml import Settings, settle

FILE = """
[policy]
name = "static"
executors = 6
[limits]
min_executors = 2
max_executors = 6
[goal]
slo_s = 5.0
[[schedule]]
cron = "0 8 * * *"
duration = "2h"
min_executors = 4
"""


def conf(**keys: str) -> dict[str, str]:
    return {f"spark.penstock.{key.replace('__', '.')}": value for key, value in keys.items()}


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text(FILE)


def settled(**keys: str) -> Settings:
    return settle(layers(conf(**keys)))


def test_every_key_that_a_job_needs_is_there() -> None:
    names = "policy minExecutors maxExecutors slo mode journal admission cluster schedule every"
    assert {f"spark.penstock.{name}" for name in names.split()} <= KEYS.keys()
    assert KEYS["spark.penstock.journal.maxBytes"] == ("journal", "max_bytes")


def test_values_are_read_as_on_the_command_line() -> None:
    schedule = '[{"cron": "0 8 * * *", "duration_s": 7200, "min_executors": 4}]'
    found = settled(
        enabled="true",
        policy="ds2:cooldown=60s",
        maxExecutors="32",
        slo="2min",
        mode="recommend",
        admission="true",
        cluster="cloud",
        every="500ms",
        journal="live.jsonl",
        journal__keep="2",
        schedule=schedule,
    )
    assert isinstance(found.spec.policy, Ds2)
    limits = found.spec.limits
    assert (limits.max_executors, limits.cooldown_s, limits.min_lifetime_s) == (32, 60.0, 300.0)
    assert limits.schedule[0].min_executors == 4
    assert found.goal.slo_s == 120.0
    live = found.live
    assert (live.mode, live.admission, live.every_s) == ("recommend", True, 0.5)
    assert (found.journal.path, found.journal.keep) == ("live.jsonl", 2)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"maxExecutor": "8"},
            "^unknown key 'spark.penstock.maxExecutor' in .*did you mean 'spark",
        ),
        ({"maxExecutors": "many"}, "^spark.penstock.maxExecutors must be a number, .* not 'many'"),
        ({"maxExecutors": "2.5"}, "^spark.penstock.maxExecutors must be a whole number"),
        ({"mode": "watch"}, "^spark.penstock.mode must be one of act, recommend, not 'watch'"),
        ({"enabled": "maybe"}, "^spark.penstock.enabled must be true or false, not 'maybe'"),
        ({"policy": "hpaa"}, r"the Spark configuration \[policy\]: unknown policy 'hpaa'"),
        ({"minExecutors": "9", "maxExecutors": "3"}, r"^the Spark configuration \[limits\]: max_"),
        ({"config": "absent.toml"}, "^cannot read absent.toml"),
        ({"schedule": "[1]"}, "^spark.penstock.schedule must be JSON"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_key(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refusal:
        settled(**keys)
    assert "\n" not in str(refusal.value)


def test_keys_of_others_are_none_of_ours() -> None:
    assert read_spark_conf({"spark.executor.cores": "2", "spark.penstockade": "x"}) == {}


@pytest.mark.usefixtures("in_folder")
def test_options_win_over_the_spark_configuration_and_that_over_the_file() -> None:
    given = layers(conf(maxExecutors="8", slo="20s"), None, {"limits": {"max_executors": 12}})
    found = settle(given)
    assert found.spec.policy == Static(executors=6)
    limits = found.spec.limits
    assert (limits.min_executors, limits.max_executors, len(limits.schedule)) == (2, 12, 1)
    assert found.goal.slo_s == 20.0
    # Another policy takes none of the parameters of the one in the file.
    assert isinstance(settled(policy="ds2").spec.policy, Ds2)
    assert settled(schedule="[]").spec.limits.schedule == ()


@pytest.mark.usefixtures("in_folder")
def test_the_origin_of_each_value_is_known() -> None:
    given = layers(conf(slo="20s", cooldown="1min"), None, {"limits": {"max_executors": 12}})
    found = origins(settle(given), given)
    assert found["options"] == {"max_executors": 12}
    assert found["the Spark configuration"] == {"cooldown_s": 60.0, "slo_s": 20.0}
    assert found["penstock.toml"].keys() == {"policy", "min_executors", "schedule"}
    assert found["defaults"]["mode"] == "act"
    counts = [len(part) for part in found.values()]
    assert sum(counts) == len(KEYS)


def test_a_limit_in_the_policy_text_says_so() -> None:
    given = layers(conf(policy="ds2:cooldown=60s"))
    assert origins(settle(given), given)["the policy text"] == {"cooldown_s": 60.0}
