"""What the doctor finds, and what it tells to set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app import main
from penstock.core.errors import ConfigError
from penstock.spark.doctor import (
    Application,
    FailureLimit,
    Finding,
    examine,
    parse_script,
    read_script,
    refuse_errors,
)
from penstock.testbed.servers import free_ports

GOOD = {
    "spark.master": "spark://host:7077",
    "spark.executor.cores": "2",
    "spark.cores.max": "32",
    "spark.dynamicAllocation.enabled": "true",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "2s",
}


def found(check: str, **changes: Any) -> list[Finding]:
    """The findings of one check on good settings with some changed; None takes one away."""
    options = {key: changes.pop(key) for key in ("triggers", "min_executors") if key in changes}
    conf = {key.replace("__", "."): value for key, value in changes.items()}
    merged = {key: value for key, value in (GOOD | conf).items() if value is not None}
    return [each for each in examine(Application(merged, **options)) if each.check == check]


def test_good_settings_have_nothing_to_change() -> None:
    findings = examine(Application(GOOD))
    assert {each.level for each in findings} == {"ok"}
    refuse_errors(findings)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]"])
def test_a_single_process_cannot_be_scaled(master: str) -> None:
    (finding,) = found("master", spark__master=master)
    assert finding.level == "error"
    with pytest.raises(ConfigError, match=r"which cannot grow: --master spark://HOST:7077"):
        refuse_errors([finding])


ON_YARN = {"spark.master": "yarn", "spark.executor.failuresValidityInterval": "1h"}


@pytest.mark.parametrize(
    ("conf", "level", "words"),
    [
        # Without dynamic allocation: twice the size at start, at least 3.
        ({"spark.dynamicAllocation.enabled": None}, "warning", "after 3 failed executors, of a"),
        (
            {"spark.dynamicAllocation.enabled": None, "spark.executor.instances": "16"},
            "ok",
            "after 32 failed executors",
        ),
        # With it: no limit, or twice its maximum.
        ({}, None, ""),
        ({"spark.dynamicAllocation.maxExecutors": "4"}, "warning", "after 8 failed executors, of"),
        ({"spark.dynamicAllocation.maxExecutors": "16"}, "ok", "after 32 failed executors"),
        # A number that is set holds with it and without.
        ({"spark.executor.maxNumFailures": "5"}, "warning", "after 5 failed executors, of a fleet"),
        ({"spark.yarn.max.executor.failures": "64"}, "ok", "after 64 failed executors"),
        (
            {
                "spark.executor.maxNumFailures": "64",
                "spark.executor.failuresValidityInterval": None,
            },
            "warning",
            "after 64 failed executors, however long ago",
        ),
    ],
)
def test_the_limit_of_failed_executors_is_the_one_that_spark_has(
    conf: dict[str, str | None], level: str | None, words: str
) -> None:
    for master in ("yarn", "k8s://https://host:6443"):
        findings = found("failures", **(ON_YARN | {"spark.master": master} | conf))
        assert [each.level for each in findings] == ([] if level is None else [level])
        assert all(words in each.reason for each in findings)
    assert found("failures", **conf) == []  # a standalone cluster has no such limit


def test_a_validity_interval_may_be_in_milliseconds() -> None:
    conf = ON_YARN | {"spark.executor.failuresValidityInterval": "60000"}
    assert Application(conf).failure_limit == FailureLimit(3, 60.0)


def test_a_local_cluster_of_processes_can() -> None:
    assert found("master", spark__master="local-cluster[2,1,512]")[0].level == "ok"


def test_spark_connect_is_refused_with_the_way_out() -> None:
    (finding,) = found("connect", spark__remote="sc://host")
    assert finding.level == "error"
    assert "run the script in the driver itself" in finding.change


@pytest.mark.parametrize("trigger", ["availableNow", "once", "realTime", "continuous"])
def test_queries_without_a_size_to_choose_are_refused(trigger: str) -> None:
    (finding,) = found("trigger", triggers=("processingTime", trigger))
    assert finding.level == "error"
    assert "trigger(processingTime=...)" in finding.change


def test_fewer_cores_than_the_smallest_fleet_is_an_error_and_than_the_largest_a_warning() -> None:
    """Two cores each: 6 cores are 3 executors."""
    (finding,) = found("room", spark__cores__max="6", min_executors=4)
    assert (finding.level, finding.change) == ("error", "set spark.cores.max=8 or lower min")
    (finding,) = found("room", spark__cores__max="6", min_executors=2)
    assert (finding.level, finding.change) == ("warning", "spark.cores.max=32")


def test_each_warning_names_the_setting() -> None:
    changes: dict[str, tuple[dict[str, str | None], str]] = {
        "executor_size": ({"spark.executor.cores": None}, "spark.executor.cores=1"),
        "decommission": ({"spark.decommission.enabled": None}, "spark.decommission.enabled=true"),
        "locality": (
            {"spark.locality.wait.process": "3s"},
            "remove spark.locality.wait.process",
        ),
        "speculation": ({"spark.speculation": "true"}, "spark.speculation=false"),
        "failures": (
            {"spark.master": "yarn", "spark.dynamicAllocation.enabled": None},
            "spark.executor.maxNumFailures=32 spark.executor.failuresValidityInterval=1h",
        ),
        "decommission_interval": (
            {"spark.storage.decommission.replicationReattemptInterval": "30s"},
            "spark.storage.decommission.replicationReattemptInterval=2s",
        ),
    }
    for check, (conf, change) in changes.items():
        (finding,) = found(check, **conf)
        assert (finding.level, finding.change) == ("warning", change)
    (finding,) = found("dynamic_allocation", **{"spark.dynamicAllocation.enabled": None})
    assert "spark.dynamicAllocation.initialExecutors=1" in finding.change


def test_what_only_mode_act_does_is_said_of_mode_act() -> None:
    """The same findings are logged in mode recommend, where Penstock moves nothing."""
    for enabled in (None, "true"):
        (finding,) = found("dynamic_allocation", **{"spark.dynamicAllocation.enabled": enabled})
        assert "mode act" in finding.reason


def test_an_allocator_that_kills_by_itself_is_refused() -> None:
    conf = {
        "spark.master": "k8s://https://host",
        "spark.kubernetes.allocation.pods.allocator": "statefulset",
    }
    assert found("allocator", **conf)[0].level == "error"


SCRIPT = """
conf = SparkConf().set("spark.executor.cores", 2).setMaster("spark://h:1")
spark = SparkSession.builder.config(map={"spark.speculation": True, "spark.x": f()}).getOrCreate()
writer = frame.writeStream.trigger(processingTime="2 seconds")
writer.start()
"""


def test_a_script_is_read_without_being_run() -> None:
    script = parse_script("raise SystemExit(9)\n" + SCRIPT)
    assert script.conf == {
        "spark.executor.cores": "2",
        "spark.master": "spark://h:1",
        "spark.speculation": "true",
    }
    assert script.hidden == ("spark.x",)
    assert script.triggers == ("processingTime",)
    assert script.starts_query


def test_what_is_no_script_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    with pytest.raises(ConfigError, match=r"cannot read .*No such file"):
        read_script(path)
    path.write_text("def (")
    with pytest.raises(ConfigError, match=r"is not Python: .* \(line 1\)"):
        read_script(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not a text file in UTF-8"):
        read_script(path)


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["doctor", *arguments])
    captured = capsys.readouterr()
    return int(str(end.value.code)), captured.out, captured.err


def test_the_command_finds_a_script_that_ends_by_itself(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "job.py"
    path.write_text("frame.writeStream.trigger(availableNow=True).start()")
    code, out, _ = doctor(capsys, str(path), "--master", "yarn", "--json")
    assert code == 1
    errors = [each for each in json.loads(out) if each["level"] == "error"]
    assert [each["check"] for each in errors] == ["trigger"]


def test_the_command_says_whether_the_master_answers(capsys: pytest.CaptureFixture[str]) -> None:
    (port,) = free_ports(1)
    code, out, _ = doctor(capsys, "--master", f"spark://127.0.0.1:{port}")
    assert code == 1
    assert f"spark://127.0.0.1:{port} does not answer (Connection refused)" in out
    assert "→ start the master, or correct its URL" in out


def test_the_command_reads_settings_from_all_places(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# ours\nspark.decommission.enabled  true\nspark.executor.cores=4\n\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    code, out, _ = doctor(capsys, "--master", "yarn", "--conf", "spark.executor.cores=2")
    assert code == 0
    assert "each executor has 2 cores" in out
    assert "spark.decommission.enabled=true" not in out


def test_the_command_shows_where_each_setting_comes_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text("[limits]\nmax_executors = 9\n[goal]\nslo_s = 5.0\n")
    Path("job.py").write_text(
        'builder.config("spark.penstock.slo", "20s"); frame.writeStream.start()'
    )
    options = ["--master", "yarn", "--min", "2", "--conf", "spark.penstock.policy=ds2:cooldown=60s"]
    code, out, _ = doctor(capsys, "job.py", *options, "--json")
    said = [each["reason"] for each in json.loads(out) if each["check"] == "settings"]
    assert (code, said[:4]) == (
        0,
        [
            "from the Spark configuration: policy = 'ds2', slo_s = 20.0",
            "from options: min_executors = 2",
            "from penstock.toml: max_executors = 9",
            "from the policy text: cooldown_s = 60.0",
        ],
    )
    assert "journal.path = ''" in said[4]
    code, _, err = doctor(capsys, "job.py", "--conf", "spark.penstock.maxExecutor=9")
    assert (code, "did you mean 'spark.penstock.maxExecutors'?" in err) == (2, True)


def test_the_command_without_anything_to_check_is_bad_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, err = doctor(capsys)
    assert (code, err) == (2, "penstock: doctor needs a script or --master URL to check\n")


def test_tasks_that_take_several_cores_leave_fewer_slots() -> None:
    """16 executors of 2 cores run 32 tasks, or 16 of 2 cores each: 16 partitions are enough."""
    (few,) = found("parallelism", spark__sql__shuffle__partitions="16")
    assert "32 slots" in few.reason
    assert not found(
        "parallelism", spark__sql__shuffle__partitions="16", **{"spark.task.cpus": "2"}
    )
