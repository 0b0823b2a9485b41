"""Which settings take part in the results, and how the tuned ones come about."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from docs import results, rivals, tune
from docs.rivals import Entry, Found, TunedSettings

from penstock.cli.commands.tune import ranges
from penstock.lab import studies
from penstock.lab.experiments import tuning
from penstock.policies import DEFAULT_POLICY, POLICIES
from penstock.settings.notation import parse
from penstock.settings.policy_spec import read_policy_spec


def test_every_policy_of_the_table_is_in_the_results_at_settings_that_can_be_read() -> None:
    for part in results.parts([Path("day.csv")], hours=3.0):
        rows = part.entries("micro-batch", tuple(POLICIES))
        specs = [read_policy_spec(row.setting, rivals.BOUNDS) for row in rows]
        assert all(spec.limits.max_executors == 16 for spec in specs)
        if not part.settings:
            assert {type(spec.policy) for spec in specs} == set(POLICIES.values())


def test_losses_of_executors_state_sizes_and_recovery_targets_have_tables() -> None:
    parts = {part.title: part for part in results.parts([], hours=3.0)}
    wrong = parts["When things go wrong"].trials
    # every 20 minutes inside of three hours
    assert len(wrong["an executor lost every 20 min"].faults) == 8
    assert wrong["3 executors lost at once"].faults[0].count == 3  # type: ignore[union-attr]
    states = parts["State size, an executor lost every 20 min"].trials
    assert [trial.on("continuous") for trial in states.values()] == [
        "continuous:state=1G", "continuous:state=4G", "continuous:state=16G",
    ]  # fmt: skip
    targets = parts["Recovery target, an executor lost every 20 min"]
    assert "daedalus:recovery_target=10min" in targets.settings


#: Policies of Koper's tables, with the name of their setting and how a row says it.
KOPER = {
    "hpa": ("hpa", "hpa:cpu_target={:g}", 100),
    "varga": ("varga-v2", "varga:utilization_target={:g}", 100),
    "dhalion_adapted": ("dhalion-adapted", "dhalion_adapted:latency_threshold={:g}s", 1),
    "ds2": ("ds2", "ds2:overprovisioning={:g}", 100),
    "ds2_adapted": ("ds2-adapted", "ds2_adapted:overprovisioning={:g}", 100),
}


@pytest.mark.parametrize("policy", KOPER)
def test_a_published_setting_is_the_one_that_did_best_in_its_study(policy: str) -> None:
    data = json.loads((Path(studies.__file__).parent / "data" / "koper2022.json").read_text())
    scaler, text, scale = KOPER[policy]
    sums: dict[float, float] = {}
    for rows in data["tables"].values():
        for name, setting, latency_s, workers, _rescales in rows:
            if name == scaler:
                sums[setting] = sums.get(setting, 0.0) + latency_s + workers
    best = min(sums, key=sums.__getitem__)
    assert text.format(best / scale) == rivals.published(policy)[0]


def test_version_2_at_its_best_is_better_than_any_of_version_1() -> None:
    data = json.loads((Path(studies.__file__).parent / "data" / "koper2022.json").read_text())
    sums: dict[tuple[str, float], float] = {}
    for rows in data["tables"].values():
        for name, setting, latency_s, workers, _rescales in rows:
            if name.startswith("varga"):
                key = (name, setting)
                sums[key] = sums.get(key, 0.0) + latency_s + workers
    assert min(sums, key=sums.__getitem__) == ("varga-v2", 30)


def test_every_rival_is_tuned_in_a_space_that_holds_its_published_settings() -> None:
    assert rivals.SEARCHED.keys() == set(POLICIES) - {DEFAULT_POLICY}
    for policy, texts in rivals.SEARCHED.items():
        space = {each.name: each for each in tuning.space(policy, ranges(texts))}
        for setting in rivals.published(policy):
            spec = read_policy_spec(setting)
            for name in spec.given & space.keys():
                value = getattr(spec.policy, name)
                assert space[name].low <= value <= space[name].high, (setting, name)


def test_a_policy_has_a_row_for_each_published_setting_and_one_for_the_tuned() -> None:
    found = Found("hard", "micro-batch", "hpa", "hpa:cpu_target_fraction=0.6", 0.9, "")
    # The defaults of a fixed fleet are 12 executors, as published.
    same = Found("hard", "micro-batch", "static", "static", 1.0, "")
    rows = rivals.entries(
        "hard", "micro-batch", TunedSettings("", (found, same)), ["hpa", "static", "flink"]
    )
    assert rows == [
        Entry("hpa:cpu_target=0.5", "`hpa:cpu_target=0.5`"),
        Entry("hpa:cpu_target=0.8", "`hpa:cpu_target=0.8`"),
        Entry("hpa:cpu_target_fraction=0.6", "`hpa`, tuned"),
        Entry("static:12", "`static:12`, also tuned"),
        Entry("flink", "`flink`"),
    ]


def test_what_was_tuned_for_other_loads_or_engines_is_not_used() -> None:
    found = Found("hard", "micro-batch", "ds2", "ds2:overprovisioning=0.2", 0.9, "")
    for family, engine in (("smooth", "micro-batch"), ("hard", "continuous")):
        rows = rivals.entries(family, engine, TunedSettings("", (found,)), ["ds2"])
        assert [row.setting for row in rows] == ["ds2:overprovisioning=0.66"]


def test_the_tuned_settings_that_are_kept_can_be_read_and_say_how_they_were_found() -> None:
    for one in rivals.read_tuned().found:
        assert parse(one.setting).name == one.policy
        read_policy_spec(one.setting, rivals.BOUNDS)
        assert one.family in rivals.FAMILIES
        assert one.engine in rivals.ENGINES
        assert one.command.startswith(f"penstock tune {one.policy} ")
        assert "--seeds 1..4" in one.command
        assert "/" not in one.command


def test_a_search_is_kept_and_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tuned.json"
    asked = ["--policy", "static", "--family", "hard", "--engine", "micro-batch", "--hours", "0.3",
             "--candidates", "2", "--processes", "1"]  # fmt: skip
    tune.main(asked, file)
    (found,) = rivals.read_tuned(file).found
    assert (found.family, found.engine, found.policy) == ("hard", "micro-batch", "static")
    assert parse(found.setting).name == "static"
    assert "static" in capsys.readouterr().err
    tune.main(asked, file)
    assert capsys.readouterr().err == ""
    tune.main([*asked, "--again"], file)
    assert "static" in capsys.readouterr().err
    # Without recorded loads there is nothing to search on.
    tune.main(["--policy", "static", "--family", "recorded"], file)
    assert rivals.read_tuned(file).found == (found,)


def test_recorded_loads_must_be_there_and_in_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "day.csv").write_text("0,5\n60,6\n")
    a, b = str(tmp_path / "a" / "day.csv"), str(tmp_path / "b" / "day.csv")
    for traces, words in (([a, b], "must be in one folder"), ([a + "x"], "is not there")):
        with pytest.raises(SystemExit, match="2"):
            tune.main([*traces, "--policy", "static"], tmp_path / "tuned.json")
        assert words in capsys.readouterr().err


def test_two_rules_on_one_load_make_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    found = Found("smooth", "micro-batch", "ds2", "ds2:overprovisioning=0.2", 0.9, "")
    monkeypatch.setattr(results, "read_tuned", lambda: TunedSettings("", (found,)))
    results.main([
        "--policy", "ds2", "--columns", "1GB of state", "--seeds", "1", "--hours", "0.3",
        "--engine", "micro-batch", "--processes", "1", "--page", str(page),
    ])  # fmt: skip
    text = page.read_text()
    assert f"{len(POLICIES)} rules at 3 settings" in text
    state = text.partition("## State size, an executor lost every 20 min, micro-batch")[2]
    assert "| policy | `1GB of state` | mean |" in state
    for row in ("`penstock`", "`ds2`, tuned", "`ds2:overprovisioning=0.66`"):
        assert f"| {row} |" in state
    assert "continuous" not in state
    # Only whole days show that a rule never moves.
    assert "Never moved" not in text


def test_a_column_that_no_table_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        results.main(["--columns", "burst"])
    assert "no table has a column 'burst'" in capsys.readouterr().err
