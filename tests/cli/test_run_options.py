"""What ``penstock run`` takes from its options and from ./penstock.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.commands.run import _settings
from penstock.cli.options import ScaleOptions
from penstock.settings.toml import parse
from penstock.spark.launch import Launch


def test_options_replace_what_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("penstock.toml").write_text(
        "[policy]\nname = 'penstock'\n[limits]\nmin_executors = 2\nmax_executors = 5\n"
        "[goal]\nslo_s = 3.0\n"
    )
    found = _settings(ScaleOptions(max=8, slo=20.0), None, "live.jsonl", True, {})
    assert (found.spec.limits.min_executors, found.spec.limits.max_executors) == (2, 8)
    assert (found.goal.slo_s, found.spec.policy.slo_s) == (20.0, 20.0)  # type: ignore[attr-defined]
    assert (found.journal.path, found.live.mode) == ("live.jsonl", "recommend")
    other = _settings(ScaleOptions(), "ds2:cooldown=60s", None, False, {})
    assert other.spec.limits.cooldown_s == 60.0
    assert other.spec.limits.max_executors == 5


def test_a_master_on_the_command_line_replaces_that_of_the_script() -> None:
    session = pytest.importorskip("pyspark.sql").SparkSession
    launch = Launch(lambda _conf: parse("", "here"), None, "spark://host:7077")
    launch._checked = True
    # The options of the builder are looked at in place of a session, which would need a cluster.
    options = launch._creating(lambda builder: builder._options)
    assert options(session.Builder().master("local[1]"))["spark.master"] == "spark://host:7077"
