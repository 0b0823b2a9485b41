"""A penstock.toml becomes a wired controller, or one sentence about what is wrong in it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from penstock.core.errors import ConfigError
from penstock.core.journal import FileJournal, JournalHeader, read_tail
from penstock.core.model import Limits
from penstock.lab.experiments.scenario import Scenario
from penstock.policies.ds2 import Ds2
from penstock.policies.kubernetes.hpa import Hpa
from penstock.policies.penstock.penstock import Penstock
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header, recorded_spec
from penstock.settings.policy_spec import wire
from penstock.settings.toml import LiveSettings, parse, read_tables, with_limits


def test_an_empty_file_is_the_default_policy_inside_the_default_limits() -> None:
    settings = parse("", "here")
    assert settings.spec.policy == Penstock()
    assert (settings.spec.limits.min_executors, settings.spec.limits.max_executors) == (1, 16)


def test_the_policy_is_told_the_goal_unless_the_file_says_otherwise() -> None:
    goal = "[goal]\nslo_s = 30.0\nlate_price = 2.0\n"
    told = parse(goal, "here").spec.policy
    assert isinstance(told, Penstock)
    assert (told.slo_s, told.late_price) == (30.0, 2.0)
    kept = parse(goal + "[policy]\nslo_s = 5.0\n", "here").spec.policy
    assert isinstance(kept, Penstock)
    assert (kept.slo_s, kept.late_price) == (5.0, 2.0)


def test_a_policy_without_an_slo_is_left_as_it_is() -> None:
    text = '[goal]\nslo_s = 30.0\n[policy]\nname = "hpa"\ncpu_target_fraction = 0.5\n'
    assert parse(text, "here").spec.policy == Hpa(cpu_target_fraction=0.5)


def test_the_name_may_be_a_policy_text_and_the_tables_win_over_it() -> None:
    text = '[policy]\nname = "ds2:overprovisioning=0.5,window=90s,cooldown=60s,max_executors=8"\n'
    spec = parse(text + "window_s = 30.0\n[limits]\nmax_executors = 4\n", "here").spec
    assert spec.policy == Ds2(overprovisioning=0.5, window_s=30.0)
    assert (spec.limits.cooldown_s, spec.limits.max_executors) == (60.0, 4)
    assert spec.label == "ds2:overprovisioning=0.5,window=30s"
    sentence = r"here \[policy\]: unknown option 'cooldwn' in ds2"
    with pytest.raises(ConfigError, match=sentence):
        parse('[policy]\nname = "ds2:cooldwn=60s"\n', "here")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[policy", "here is not valid TOML"),
        (
            '[policy]\nname = "hpaa"',
            r"here \[policy\]: unknown policy 'hpaa': did you mean 'hpa'",
        ),
        ("[limits]\nmax_executor = 3", r"here \[limits\].*max_executor.*max_executors"),
        ("[limits]\nmin_executors = 9\nmax_executors = 3", r"here \[limits\].*at least.*9.*not 3"),
        ('[limits]\nmax_executors = "many"', "max_executors = 'many': expected int"),
        ("[goal]\nslo_s = -1.0", r"here \[goal\].*slo_s.*not -1"),
        ('[live]\nmode = "dance"', r"here \[live\].*mode.*dance"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refusal:
        parse(text, "here")
    assert "\n" not in str(refusal.value)


def test_the_kind_of_cluster_sets_what_nobody_gives() -> None:
    cloud = parse('[live]\ncluster = "cloud"', "here").spec
    assert (cloud.limits.min_lifetime_s, cloud.policy) == (300.0, Penstock(assumed_startup_s=120.0))
    own = parse('[live]\ncluster = "cloud"\n[limits]\nmin_lifetime_s = 30.0', "here").spec
    assert own.limits.min_lifetime_s == 30.0
    hpa = parse('[policy]\nname = "hpa"\n[live]\ncluster = "on-premise"', "here").spec
    assert (hpa.limits.min_lifetime_s, hpa.policy) == (60.0, Hpa())
    with pytest.raises(ConfigError, match="cluster = 'clod'"):
        parse('[live]\ncluster = "clod"', "here")


SCHEDULE = """
[limits]
max_executors = 12
[[schedule]]
name = "morning"
cron = "30 7 * * mon-fri"
duration = "2h"
timezone = "Europe/Berlin"
min_executors = 6
[[schedule]]
cron = "0 22 * * *"
duration = 600
quiet = true
"""


def test_a_schedule_becomes_limits_of_the_fleet() -> None:
    limits = parse(SCHEDULE, "here").spec.limits
    assert limits.max_executors == 12
    assert [(one.name, one.duration_s, one.quiet) for one in limits.schedule] == [
        ("morning", 7200.0, False),
        ("", 600.0, True),
    ]


def test_the_header_of_a_journal_carries_the_schedule() -> None:
    spec = parse(SCHEDULE, "here").spec
    written = msgspec.json.encode(journal_header(spec, Goal()))
    read_back = msgspec.json.decode(written, type=JournalHeader)
    assert recorded_spec(read_back).limits == spec.limits


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[[schedule]]\nduration = '2h'", "here [[schedule]] 1 has no cron"),
        ("[[schedule]]\ncron = '0 8 * * *'", "here [[schedule]] 1 has no duration"),
        (
            "[[schedule]]\ncron = '0 8 * * *'\nduration = 'long'\nquiet = true",
            "here [[schedule]] 1: duration must be a number",
        ),
        (
            "[[schedule]]\ncron = '0 8 * * *'\nduration = '2h'\nmin_executor = 3",
            "unknown key 'min_executor' in here [[schedule]] 1: did you mean",
        ),
        (
            "[[schedule]]\ncron = '0 8 * * *'\nduration = '2h'\nmin_executors = 99",
            "min_executors = 99 is outside of the bounds of the fleet, 1 to 16",
        ),
    ],
)
def test_a_mistake_in_a_schedule_is_named_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(text, "here")
    assert sentence in str(refusal.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere\.toml: No such file"):
        read_tables(tmp_path / "nowhere.toml")


def test_a_wired_controller_goes_on_from_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    spec = parse('[policy]\nname = "hpa"\n', "here").spec
    scenario = Scenario("constant:10k", duration_s=600.0)

    def run_on(turns: range) -> list[float]:
        engine = scenario.job.start(scenario.rates(), executors=3, seed=1, faults=())
        past = list(read_tail(path)) if path.exists() else ()
        with FileJournal(path) as journal:
            controller = wire(spec, engine, engine, journal=journal, past=past)
            known = [seen.at_s for seen in controller.knowledge.history]
            for turn in turns:
                controller.turn(15.0 * turn)
        return known

    assert run_on(range(1, 5)) == []
    assert run_on(range(5, 7)) == [15.0, 30.0, 45.0, 60.0]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"mode": "watch"}, "mode must be act or recommend, not 'watch'"),
        ({"every_s": 0.0}, "every_s must be positive, not 0.0"),
        ({"cluster": "clod"}, "cloud"),
        ({"log": "xml"}, "log must be text or json, not 'xml'"),
    ],
)
def test_live_settings_that_cannot_be_are_refused(
    setting: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        LiveSettings(**setting)  # type: ignore[arg-type]


def test_limits_of_an_attachment_replace_some_or_all() -> None:
    spec = parse("", "here").spec
    assert with_limits(spec, None) is spec
    assert with_limits(spec, Limits(max_step=3)).limits == Limits(max_step=3)
    changed = with_limits(spec, {"cooldown": "1min"}).limits
    assert changed == msgspec.structs.replace(spec.limits, cooldown_s=60.0)
    with pytest.raises(ConfigError, match="limits must be a table"):
        with_limits(spec, 3)  # type: ignore[arg-type]


def test_a_journal_that_names_no_policy_needs_one() -> None:
    with pytest.raises(ConfigError, match="does not say which policy wrote it"):
        recorded_spec(JournalHeader.of())
