"""Arguments of `attach` that cannot work: one sentence each, before anything is started."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import penstock
from penstock.core.errors import ConfigError
from penstock.policies.static import Static
from penstock.spark.launch import attach_configured

WITHOUT_PYSPARK = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import penstock
try:
    penstock.attach(object())
except penstock.ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"max": "4"}, "^max must be a whole number of executors, not '4'$"),
        ({"min": 1.5}, "^min must be a whole number of executors, not 1.5$"),
        ({"min": True}, "^min must be a whole number of executors, not True$"),
        ({"min": 5, "max": 3}, "max_executors must be at least min_executors .*not 3"),
        ({"slo_s": "10 parsecs"}, "^slo_s must be a number, .*, not '10 parsecs'$"),
        ({"slo_s": 0}, "^slo_s must be a positive number of seconds, not 0$"),
        ({"slo_s": float("nan")}, "^slo_s must be a positive number of seconds, not nan$"),
        ({"every_s": -1}, "^every_s must be a positive number of seconds, not -1$"),
        ({"mode": "watch"}, "^mode must be act or recommend, not 'watch'$"),
        ({"limits": {"cool": 3}}, "^unknown limit 'cool' in limits: did you mean 'cooldown_s'"),
        ({"limits": {"cooldown_s": [3]}}, r"^limits: cooldown_s = \[3\]: expected float"),
        ({"limits": 3}, "^limits must be a table such as .*, not 3$"),
        ({"policy": 42}, "^policy must be a text such as .* and 42 has no decide, period_s"),
        ({"policy": Static}, r"pass Static\(\), not the class"),
        ({"policy": "hpaa"}, "^unknown policy 'hpaa': did you mean 'hpa'"),
        ({"policy": "ds2:cooldwn=60s"}, "^unknown option 'cooldwn' in ds2: did you mean"),
        ({"queries": ["clicks"]}, "^queries must be tables by name: .*, not "),
        ({"queries": {"a": {"weight": 0}}}, r"^options \[\[query\]\] 1: weight must be finite and"),
        (
            {"queries": {"a": {"slow": 5}}},
            r"^unknown key 'slow' in options \[\[query\]\] 1: did you",
        ),
        ({"journal": 3}, "^journal must be the path of a file, not 3$"),
        ({}, "^spark must be a SparkSession, not 'no session'$"),
        ({"policy": "ds2:cooldown=60s", "slo_s": "10s"}, "^spark must be a SparkSession"),
        ({"limits": {"cooldown": "2min", "max_step": 2}}, "^spark must be a SparkSession"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    spark: Any = "no session"
    with pytest.raises(ConfigError, match=sentence) as refusal:
        penstock.attach(spark, **arguments)
    assert "\n" not in str(refusal.value)


def test_without_pyspark_the_sentence_says_what_to_install() -> None:
    argv = [sys.executable, "-c", WITHOUT_PYSPARK]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert result.stderr == ""
    assert result.stdout.startswith("attach needs PySpark, and there is no module p")
    assert result.stdout.endswith("pip install 'penstock[spark]'\n")


def test_a_client_of_spark_connect_is_refused_in_one_sentence() -> None:
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", "streams": ()})
    session: Any = kind()
    with pytest.raises(ConfigError, match=r"^a Spark Connect client cannot see .*: attach Pen"):
        penstock.attach(session)
    with pytest.raises(ConfigError, match=r"^a Spark Connect client cannot see"):
        attach_configured(session)
