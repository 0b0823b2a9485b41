"""Whatever a user or a file can make large has a limit, and passing it is one sentence."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from penstock.core.errors import ConfigError
from penstock.core.files import MOST_LINE_BYTES
from penstock.core.journal import JournalHeader, read_steps, write_all
from penstock.core.model import MOST_EXECUTORS, MOST_SCHEDULED, Limits
from penstock.core.schedule import ScheduledLimit
from penstock.lab.advise.events import gather
from penstock.lab.advise.logs import LogFile, lines
from penstock.settings.notation import MOST_CHARACTERS
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.toml import MOST_BYTES, read_tables
from penstock.simulation.workloads import traces
from penstock.simulation.workloads.expressions import MOST_PARENTHESES, parse_workload
from penstock.spark.sensor.offsets import CURVE_OFFSETS, OffsetCurve


def test_policy_texts_and_workloads() -> None:
    with pytest.raises(ConfigError, match=f"at most {MOST_CHARACTERS} characters, not 10005"):
        read_policy_spec("hpa:" + "x" * (MOST_CHARACTERS + 1))
    with pytest.raises(ConfigError, match=f"a workload must have at most {MOST_CHARACTERS}"):
        parse_workload("sine + " * MOST_CHARACTERS)
    with pytest.raises(ConfigError, match=f"at most {MOST_PARENTHESES} parentheses, not 51"):
        parse_workload("(" * 51 + "sine" + ")" * 51)
    assert parse_workload("(" * 50 + "sine" + ")" * 50) == parse_workload("sine")


def test_settings_files(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_bytes(b"#" * MOST_BYTES)
    assert read_tables(path) == {}
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(ConfigError, match=r"penstock.toml has over 1 MiB"):
        read_tables(path)


def test_fleets_and_schedules() -> None:
    quiet = ScheduledLimit(cron="0 8 * * *", duration_s=60.0, quiet=True)
    Limits(max_executors=MOST_EXECUTORS, schedule=(quiet,) * MOST_SCHEDULED)
    with pytest.raises(ConfigError, match="and at most 10000, not 10001"):
        Limits(max_executors=MOST_EXECUTORS + 1)
    with pytest.raises(ConfigError, match="a schedule has at most 200 entries, not 201"):
        Limits(schedule=(quiet,) * (MOST_SCHEDULED + 1))


def test_lines_of_journals(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    write_all(path, [], JournalHeader.of())
    with path.open("ab") as file:
        file.write(b"{" * (MOST_LINE_BYTES + 1))
    with pytest.raises(ConfigError, match=r"line 2 of .*live.jsonl has over 4 MiB"):
        list(read_steps(path))


def test_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_BYTES", 1 << 20)
    path = tmp_path / "load.csv"
    path.write_bytes(b"5\n" * (1 << 20))
    with pytest.raises(ConfigError, match=r"load.csv: has over 1 MiB, give fewer rows"):
        traces.read_trace(str(path))


def test_lines_of_event_logs_are_cut_and_counted() -> None:
    """The line between two good ones has 8 MiB; the others are read."""
    start = b'{"Event":"SparkListenerApplicationStart","App ID":"x","App Name":"%s"}'
    content = b"\n".join([start % b"a", start % (b"b" * (8 << 20)), start % b"c", b""])
    found = list(lines(BytesIO(content)))
    assert max(map(len, found)) < 5 << 20
    part = gather(LogFile("log", "log"), iter(found), 3600.0)
    assert (part.name, part.problem) == ("c", "has 1 line that cannot be read")


def test_offsets_of_very_many_partitions() -> None:
    """10,000 partitions for 1,000 s: 50 instants are kept, which is 500,000 offsets."""
    curve, names = OffsetCurve(), [("bids", number) for number in range(10_000)]
    ends = dict.fromkeys(names, 0)
    for second in range(1000):
        curve.add(float(second), ends)
    assert len(curve) <= CURVE_OFFSETS // len(names)
