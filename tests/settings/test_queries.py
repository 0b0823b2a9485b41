"""What is asked of single queries: in a file, in the Spark configuration, in a header."""

from __future__ import annotations

import msgspec
import pytest

from penstock.core.errors import ConfigError
from penstock.core.journal import JournalHeader
from penstock.settings.goal import Goal, QueryGoal
from penstock.settings.header import journal_header, recorded_goal
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.spark_conf import origins, read_spark_conf
from penstock.settings.toml import parse, settle

FILE = """
[goal]
slo_s = 20.0
[[query]]
name = "clicks"
slo = "5s"
weight = 2
[[query]]
name = "audit"
exclude = true
"""
ASKED = (QueryGoal("clicks", slo_s=5.0, weight=2.0), QueryGoal("audit", exclude=True))


def test_a_file_asks_something_of_single_queries() -> None:
    goal = parse(FILE, "here").goal
    assert (goal.slo_s, goal.queries) == (20.0, ASKED)
    assert goal.of_query("views") == QueryGoal("views")


def test_the_spark_configuration_replaces_the_queries_of_the_file() -> None:
    conf = {
        "spark.penstock.query.my.clicks.slo": "5s",
        "spark.penstock.query.my.clicks.weight": "0.5",
        "spark.penstock.query.audit.exclude": "true",
    }
    given = {"file": {"query": [{"name": "old", "exclude": True}]}, "conf": read_spark_conf(conf)}
    settings = settle(given)
    assert settings.goal.queries == (
        QueryGoal("my.clicks", slo_s=5.0, weight=0.5),
        QueryGoal("audit", exclude=True),
    )
    assert origins(settings, given)["conf"] == {"queries": settings.goal.queries}


def test_the_header_of_a_journal_carries_what_is_asked_of_queries() -> None:
    goal = Goal(queries=ASKED)
    header = journal_header(read_policy_spec("static:4"), goal)
    read_back = msgspec.json.decode(msgspec.json.encode(header), type=JournalHeader)
    assert read_back.goal == header.goal  # so that a restarted driver continues its journal
    assert recorded_goal(read_back) == goal


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("slo = '5s'", "here [[query]] 1 has no name"),
        (
            "name = 'a'\nweight = 0",
            "here [[query]] 1: weight must be finite and more than 0, not 0",
        ),
        ("name = 'a'\nweight = -1.5", "weight must be finite and more than 0, not -1.5"),
        ("name = 'a'\nweight = nan", "weight must be finite and more than 0, not nan"),
        ("name = 'a'\nslo = '0s'", "slo_s must be finite and more than 0, not 0.0"),
        ("name = 'a'\nslo = 'soon'", "here [[query]] 1: slo must be a number"),
        ("name = ''", "name must be that of a query, not empty"),
        ("name = 'a'\nexlude = true", "unknown key 'exlude' in here [[query]] 1: did you mean"),
        ("name = 'a'\nexclude = 'yes'", "here [[query]] 1: exclude = 'yes': expected bool"),
        (
            "name = 'a'\nexclude = true\nslo = 5",
            "an excluded query has neither an SLO nor a weight",
        ),
        ("name = 'a'\n[[query]]\nname = 'a'", "here [query]: the query 'a' is named 2 times"),
    ],
)
def test_a_mistake_in_a_query_is_named_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(f"[[query]]\n{text}", "here")
    assert sentence in str(refusal.value)


def test_a_mistake_in_a_key_of_a_query_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'spark.penstock.query.a.wait'"):
        read_spark_conf({"spark.penstock.query.a.wait": "5s"})
    with pytest.raises(ConfigError, match=r"spark.penstock.query.a.exclude must be"):
        read_spark_conf({"spark.penstock.query.a.exclude": "maybe"})
