"""Settings in a Spark configuration: the same as in penstock.toml, between it and arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.policies.ds2 import Ds2
from penstock.policies.static import Static
from penstock.settings.spark_conf import KEYS, executor_size, layers, origins, read_spark_conf
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


def test_prices_of_cores_and_memory_become_one_of_an_executor() -> None:
    # 2 cores at 0.04 and 8 + 0.8 GB at 0.01 are 0.168 an hour: 8.4 pay for 50 hours.
    size = {"spark.master": "yarn", "spark.executor.cores": "2", "spark.executor.memory": "8g"}
    money = conf(corePrice="0.04", gbPrice="0.01", maxCostPerDay="8.4", currency="EUR")
    found = settle(layers(size | money))
    assert found.goal.executor_price == pytest.approx(0.168)
    assert found.spec.limits.max_executor_hours_per_day == pytest.approx(50.0)
    said = layers(size | money | conf(executorCores="4"))
    assert settle(said).goal.executor_price == pytest.approx(0.248)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ({"corePrice": "0.04"}, r"\[goal\]: core_price needs executor_cores, which is not known"),
        ({"price": "2", "gbPrice": "1"}, "price is for an executor: give it, or core_price and"),
        ({"gbPrice": "-1"}, "gb_price must be finite and not negative, not -1"),
        ({"gbPrice": "0", "maxCostPerDay": "9"}, "must be positive, not 9.0 and 0.0"),
    ],
)
def test_prices_that_cannot_be_are_refused(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        settle(layers({"spark.master": "spark://host:7077"} | conf(**keys)))


@pytest.mark.parametrize(
    ("own", "memory_gb"),
    [
        ({"memory": "1536m"}, 1.875),  # 384 MB are the least overhead
        ({"memory": "4g", "memoryOverhead": "1024"}, 5.0),
        ({"memory": "10g", "memoryOverheadFactor": "0.4"}, 14.0),
        ({"memory": "2g", "memoryOverhead": "1g", "pyspark.memory": "2g"}, 5.0),
    ],
)
def test_the_memory_of_an_executor_is_what_the_cluster_gives_it(
    own: dict[str, str], memory_gb: float
) -> None:
    named = {f"spark.executor.{key}": value for key, value in own.items()}
    found = executor_size({"spark.master": "k8s://https://host:6443", **named})
    assert found == {"executor_cores": 1.0, "executor_memory_gb": memory_gb}


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
    assert sum(counts) == len(KEYS) + 1  # single queries have keys of their own


def test_a_limit_in_the_policy_text_says_so() -> None:
    given = layers(conf(policy="ds2:cooldown=60s"))
    assert origins(settle(given), given)["the policy text"] == {"cooldown_s": 60.0}


def test_an_address_with_a_secret_is_listed_without_it() -> None:
    layers = {"conf": {"live": {"webhook": "https://me:hush@hooks.example/T0/hush?token=hush"}}}
    found = origins(settle(layers), layers)
    assert found["conf"]["webhook"] == "https://hooks.example/..."
    assert "hush" not in repr(found)
