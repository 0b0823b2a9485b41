"""Recorded loads: every form of file that reads, and every kind that does not."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.simulation.workloads.expressions import parse_workload
from penstock.simulation.workloads.traces import Trace, read_trace

PLAIN = "hours=24,scale=1,noise=0,slow_noise=0"


def capacity(executors: int) -> float:
    return 10_000.0 * executors


def written(folder: Path, text: str, name: str = "load.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def day(folder: Path) -> str:
    """A day of five-minute rows, from 100 up to 387."""
    rows = [f"2024-03-01 {i // 12:02d}:{i % 12 * 5:02d}:00,{100 + i}" for i in range(288)]
    return written(folder, "date,messages\n" + "\n".join(rows) + "\n")


def rates(file: str, options: str, seconds: int, seed: int = 1) -> list[float]:
    return parse_workload(f"trace:{file},{options}").rates(seconds, seed, capacity)


@pytest.mark.parametrize(
    "text",
    [
        "seconds,rate\n0,10\n2,20\n4,40\n",
        "0,10\n2,20\n4,40\n",
        "0;10\n2;20\n4;40",
        "second|adCount\n0|10\n2|20\n4|40\n",
        "t\tload\n-4\t10\n-2\t20\n0\t40\n",
        "\ufeffseconds,rate\r\n0,10\r\n2,20\r\n4,40\r\n",
        "# recorded by hand\n\nseconds,rate\n0,10\n\n2,20\n# noon\n4,40\n",
        "date,messages\n2024-02-28 23:59:58,10\n2024-02-29 00:00:00,20\n2024-02-29 00:00:02,40\n",
        "2024-01-01T00:00:00Z,10\n2024-01-01T01:00:02+01:00,20\n2024-01-01T00:00:04Z,40\n",
        "timestamp,rate\n1648120746,10\n1648120748,20\n1648120750,40\n",
        "timestamp,rate\n1648120746000,10\n1648120748000,20\n1648120750000,40\n",
        "host,time,rate\nx,0,10\ny,2,20\nz,4,40\n",
        "rate,seconds\n10,0\n20,2\n40,4\n",
        "messages,when\n10,2024-01-01 00:00:00\n20,2024-01-01 00:00:02\n40,2024-01-01 00:00:04\n",
        '"seconds","rate"\n"0","10"\n"2","20"\n"4","40"\n',
        ",index,timestamp,input_rate,datetime,seconds,lag\n"
        "0,13,1648120746,10,2022-03-24 11:19:06,0,9\n"
        "1,14,1648120748,20,2022-03-24 11:19:08,2,9\n"
        "2,15,1648120750,40,2022-03-24 11:19:10,4,9\n",
    ],
)
def test_files_of_many_forms_read_by_themselves(tmp_path: Path, text: str) -> None:
    recording = read_trace(written(tmp_path, text))
    assert recording.at_s.tolist() == [0.0, 2.0, 4.0]
    assert recording.rates_rps.tolist() == [10.0, 20.0, 40.0]
    assert recording.duration_s == 6.0


@pytest.mark.parametrize(
    "text", ["5\n7\n9\n", "load\n5\n7\n9\n", "seconds\n5\n7\n9\n", "a,b\nx,5\nx,7\nx,9\n"]
)
def test_a_single_column_has_one_value_per_second(tmp_path: Path, text: str) -> None:
    recording = read_trace(written(tmp_path, text))
    assert recording.at_s.tolist() == [0.0, 1.0, 2.0]
    assert recording.rates_rps.tolist() == [5.0, 7.0, 9.0]
    assert recording.duration_s == 3.0


@pytest.mark.parametrize(("time", "rate"), [("b", "c"), ("2", "3"), ("b", "3"), (None, "c")])
def test_columns_can_be_named_or_numbered(tmp_path: Path, time: str | None, rate: str) -> None:
    file = written(tmp_path, "a,b,c\n0,0,1\n5,60,2\n6,120,3\n")
    recording = read_trace(file, time, rate)
    assert recording.at_s.tolist() == ([0.0, 60.0, 120.0] if time else [0.0, 5.0, 6.0])
    assert recording.rates_rps.tolist() == [1.0, 2.0, 3.0]


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, "0,1\n1,2\n")).rates_rps.tolist() == [1.0, 2.0]
    assert read_trace(written(tmp_path, "0,1\n1,25\n")).rates_rps.tolist() == [1.0, 25.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("\n\n# nothing\n", "the file is empty"),
        ("seconds,rate\n", "at least 2 rows of data are needed, but there are 0"),
        ("seconds,rate\n0,5\n", "at least 2 rows of data are needed, but there are 1"),
        ("time,host,note\nnoon,a,b\nnight,b,c\n", "line 2: no column of rates found"),
        ("time,note\n0,a\n1,b\n", "line 2: no column of rates found, expected a number"),
        ("date,note\n2024-01-01,a\n2024-01-02,b\n", "line 2: no column of rates found"),
        ("seconds,rate\n0,1\n5,2\n3,4\n", "line 4: times must rise, but 3 follows 5"),
        ("seconds,rate\n0,1\n0,2\n", "line 3: times must rise, but 0 follows 0"),
        ("seconds,rate\n0,1\n1,nan\n", "line 3: rates must be finite and not negative, not nan"),
        ("seconds,rate\n0,inf\n1,2\n", "line 2: rates must be finite and not negative, not inf"),
        ("seconds,rate\n0,1\n1,-2\n", "line 3: rates must be finite and not negative, not -2"),
        ("seconds,rate\n0,1\n1,x\n", "line 3: expected a rate in column 2, not 'x'"),
        ("seconds,rate\n0,1\n1\n", "line 3: expected a rate in column 2, not ''"),
        (
            "seconds,rate\n0,1\nnoon,2\n",
            "line 3: expected a time in column 1 (seconds or an ISO date), not 'noon'",
        ),
        ("a\0b", "expected lines of text, but the file is binary"),
        ("0,1\n1," + "9" * 200_000, "line 2: not CSV (field larger than field limit"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as refusal:
        read_trace(file)
    assert str(refusal.value).startswith(f"trace {file}")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_bytes(b"\xff\xfe\x89PNG\r\n")
    with pytest.raises(ConfigError, match="the file is binary"):
        read_trace(str(path))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv: there is no such file"):
        read_trace(str(tmp_path / "none.csv"))
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        read_trace(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace("a\0b")


def test_an_unknown_column_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    file = written(tmp_path, "seconds,input_rate\n0,1\n1,2\n")
    with pytest.raises(ConfigError, match=r"unknown column 'input_rat' in trace .* 'input_rate'\?"):
        read_trace(file, rate="input_rat")
    bare = written(tmp_path, "0,1\n1,2\n", "bare.csv")
    with pytest.raises(ConfigError, match="so a column is a number from 1 to 2, not '3'"):
        read_trace(bare, rate="3")


def test_rows_are_joined_by_straight_lines_and_the_last_one_holds(tmp_path: Path) -> None:
    file = written(tmp_path, "0,10\n2,20\n4,40\n")
    assert parse_workload(f"trace:{file}").natural_duration_s() == 6.0
    assert rates(file, PLAIN, 6) == [10.0, 15.0, 20.0, 30.0, 40.0, 40.0]


def test_a_longer_run_starts_the_trace_over(tmp_path: Path) -> None:
    file = written(tmp_path, "5\n7\n9\n")
    assert rates(file, PLAIN, 7) == [5.0, 7.0, 9.0, 5.0, 7.0, 9.0, 5.0]


def test_a_piece_is_cut_by_start_and_hours(tmp_path: Path) -> None:
    file = day(tmp_path)
    assert parse_workload(f"trace:{file}").natural_duration_s() == 86_400.0
    piece = parse_workload(f"trace:{file},start=2h,hours=1,scale=1,noise=0,slow_noise=0")
    assert piece.natural_duration_s() == 3_600.0
    series = piece.rates(3_600, 1, capacity)
    assert series[0] == 124.0
    assert series[150] == pytest.approx(124.5)
    assert series[3_300] == pytest.approx(135.0)
    rest = parse_workload(f"trace:{file},start=20h,hours=24")
    assert rest.natural_duration_s() == 4 * 3_600.0
    assert parse_workload(f"trace:{file},hours=0.0001").natural_duration_s() == 2.0


def test_a_start_behind_the_end_is_refused(tmp_path: Path) -> None:
    file = day(tmp_path)
    with pytest.raises(ConfigError, match="start must be before its last row at 86100 s, not 9"):
        parse_workload(f"trace:{file},start=25h").natural_duration_s()


def test_by_default_the_peak_needs_twelve_executors(tmp_path: Path) -> None:
    file = day(tmp_path)
    workload = parse_workload(f"trace:{file}")
    whole = workload.rates(86_400, 1, capacity)
    assert np.percentile(whole, 99.9) == pytest.approx(120_000.0)
    assert workload.rates(3_600, 1, capacity) == whole[:3_600]
    assert np.percentile(rates(file, "peak_executors=4", 86_400), 99.9) == pytest.approx(40_000.0)


def test_a_trace_can_be_scaled_by_a_factor_or_to_its_largest_value(tmp_path: Path) -> None:
    file = written(tmp_path, "0,10\n2,20\n4,40\n")
    assert rates(file, "scale=2,noise=0,slow_noise=0", 3) == [20.0, 30.0, 40.0]
    assert rates(file, "max=8k,noise=0,slow_noise=0", 3) == [2_000.0, 3_000.0, 4_000.0]
    assert max(rates(file, "max=8k", 6)) == pytest.approx(8_000.0)


def test_an_all_zero_trace_cannot_be_scaled_to_executors(tmp_path: Path) -> None:
    file = written(tmp_path, "0\n0\n0\n")
    assert rates(file, PLAIN, 3) == [0.0, 0.0, 0.0]
    with pytest.raises(ConfigError, match="cannot be scaled to a peak"):
        rates(file, "peak_executors=3", 3)


def test_noise_has_the_sizes_that_were_asked_for(tmp_path: Path) -> None:
    flat = written(tmp_path, "0,1000\n200000,1000\n")
    white = np.array(rates(flat, "hours=48,scale=1,noise=0.05,slow_noise=0", 100_000))
    assert white.std() == pytest.approx(50.0, rel=0.02)
    assert np.corrcoef(white[:-1], white[1:])[0, 1] == pytest.approx(0.0, abs=0.02)
    slow = np.array(rates(flat, "hours=48,scale=1,noise=0,slow_noise=0.03", 100_000))
    assert slow.std() == pytest.approx(30.0, rel=0.15)
    assert np.corrcoef(slow[:-1], slow[1:])[0, 1] > 0.99


def test_noise_follows_the_seed(tmp_path: Path) -> None:
    file = day(tmp_path)
    assert rates(file, "hours=1", 600, seed=3) == rates(file, "hours=1", 600, seed=3)
    assert rates(file, "hours=1", 600, seed=3) != rates(file, "hours=1", 600, seed=4)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("small"), "0,10\n100,0\n200,40\n")


@given(noise=st.floats(0, 1), slow_noise=st.floats(0, 1), seed=st.integers(0, 1000))
def test_rates_stay_at_or_above_zero_whatever_the_noise(
    small: str, noise: float, slow_noise: float, seed: int
) -> None:
    trace = Trace(file=small, noise_fraction=noise, slow_noise_fraction=slow_noise)
    series = np.array(trace.rates(300, seed, capacity))
    assert len(series) == 300
    assert np.all(np.isfinite(series) & (series >= 0.0))


def test_a_trace_describes_itself_so_that_it_reads_back() -> None:
    trace = Trace(file="a/b:c=d.csv", hours=2.0, start_s=5_400.0, max_rps=40_000.0, rate="x")
    assert trace.describe() == "trace:a/b:c=d.csv,hours=2,start=1.5h,max=40k,rate=x"
    assert parse_workload(trace.describe()) == trace


def test_a_day_of_five_minute_rows_takes_well_below_a_tenth_of_a_second(tmp_path: Path) -> None:
    workload = parse_workload(f"trace:{day(tmp_path)}")
    best_s = min(_timed(workload, seed) for seed in range(5))
    assert best_s < 0.1


def _timed(workload: object, seed: int) -> float:
    assert isinstance(workload, Trace)
    started_s = process_time()
    workload.rates(86_400, seed, capacity)
    return process_time() - started_s
