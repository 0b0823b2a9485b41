"""How fast event logs are read, how much memory that takes, and a thousand logs in one call.

    python -m benchmarks.advise_speed                                   # about 15 min, 2 GB of disk
    python -m benchmarks.advise_speed speed                             # one of: speed memory logs
    python -m benchmarks.advise_speed --megabytes 50 --long 100 --logs 20

Three measurements; the results go into results.json by name, like those of the other benchmarks:

- Each format is read on one core by what a task of `penstock advise` runs. The recorded log of the
  tests is written again and again, with as many ends of tasks as Spark writes, until it has
  `--megabytes`; megabytes are those of the log before it was compressed.
- `penstock advise` on one log of `--long` megabytes: the peak memory of each of its processes.
- `penstock advise` on `--logs` logs: a worker is killed on the way, and all logs have to be judged.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from penstock.lab.advise.logs import LogFile, lines
from penstock.lab.advise.pipeline import read_here
from penstock.lab.experiments import lab_module
from penstock.testbed.keeper import descendants

RECORDED = Path("tests/lab/advise/recorded")
#: The recorded log has one end of a task in ten.
TASK_ENDS = 10
GOAL_MB_PER_S = 20.0
#: What reading may add to the memory of a process, whatever the length of the log.
GOAL_MB = 200.0
LOOK_EVERY_S = 0.1
PARTS = ("speed", "memory", "logs")


def recorded_log() -> Path:
    (place,) = RECORDED.glob("eventlog_v2_*/events_*")
    return place


def repeated(most_bytes: int) -> Iterator[bytes]:
    """The recorded log, as a whole and as often as it takes; time goes on between the copies."""
    with recorded_log().open("rb") as file:
        recorded = list(lines(file))
    written, copy = 0, 0
    while written < most_bytes:
        for line in recorded:
            is_task = line.startswith(b'{"Event":"SparkListenerTaskEnd"')
            if b"QueryProgressEvent" in line[:90]:
                line = re.sub(rb'"timestamp":"\d{4}', b'"timestamp":"%d' % (2026 + copy), line)
            for _ in range(TASK_ENDS if is_task else 1):
                written += len(line) + 1
                yield line + b"\n"
        copy += 1


def written(place: Path, megabytes: float, codec: str | None) -> int:
    """Write a log of that length; its bytes before they were compressed."""
    size = 0
    arrow = lab_module("pyarrow", "this benchmark")
    with arrow.output_stream(str(place), compression=codec) as stream:
        for line in repeated(int(megabytes * 1e6)):
            stream.write(line)
            size += len(line)
    return size


def speeds(megabytes: float = 100.0) -> list[tuple[str, float, float]]:
    """What one core reads in a second, in each format; with its goal."""
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for codec in (None, "zstd"):
            place = Path(directory, f"log-{codec}")
            size = written(place, megabytes, codec)
            begin_s = time.process_time()
            part = read_here(86_400.0, LogFile(str(place), f"file:{place}"))
            took_s = time.process_time() - begin_s
            assert part.reports
            assert not part.problem
            name = f"advise: MB/s of event log on one core, {codec or 'plain'}"
            results.append((name, size / 1e6 / took_s, GOAL_MB_PER_S))
            place.unlink()
    return results


class Advised(NamedTuple):
    """A call of `penstock advise`: its rows, its time, and the peak memory by kind of process."""

    rows: list[dict[str, Any]]
    took_s: float
    peaks_mb: dict[str, float]
    killed: int


def advised(logs: Path, master: str, kills: bool = False) -> Advised:
    """Call it; `kills` one worker of Python as soon as there is one that has worked a second."""
    argv = [sys.executable, "-m", "penstock", "advise", str(logs), "--master", master, "--json"]
    argv += ["--html", str(logs.parent / "page.html")]
    peaks_mb: dict[str, float] = defaultdict(float)
    killed, begin_s = 0, time.monotonic()
    with (logs.parent / "rows.json").open("w+") as output:
        with subprocess.Popen(argv, stdout=output) as process:
            while process.poll() is None:
                for pid in (process.pid, *descendants(process.pid)):
                    with suppress(OSError, LookupError):  # it ended meanwhile
                        kind, peak_mb, cpu_s = _seen(pid)
                        peaks_mb[kind] = max(peaks_mb[kind], peak_mb)
                        if kills and not killed and kind == "worker" and cpu_s > 1.0:
                            os.kill(pid, signal.SIGKILL)
                            killed = pid
                time.sleep(LOOK_EVERY_S)
        took_s = time.monotonic() - begin_s
        output.seek(0)
        if process.returncode:
            raise SystemExit(f"penstock advise ended with {process.returncode}")
        return Advised(json.load(output), took_s, peaks_mb, killed)


def _seen(pid: int) -> tuple[str, float, float]:
    """What a process is, its peak memory in megabytes and the seconds of a core that it took."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    kind = "java" if b"java" in command.split(b"\0")[0] else "driver"
    kind = "worker" if b"pyspark.daemon" in command else kind
    status = Path(f"/proc/{pid}/status").read_text()
    (peak_kb,) = re.findall(r"VmHWM:\s+(\d+)", status)[:1] or ("0",)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return kind, int(peak_kb) / 1e3, ticks / os.sysconf("SC_CLK_TCK")


def long_log(megabytes: float) -> list[tuple[str, float, float]]:
    """The peak memory of the process that reads one long log; smaller is better."""
    with tempfile.TemporaryDirectory() as directory:
        logs = Path(directory, "logs")
        logs.mkdir()
        written(logs / "app-long", megabytes, "zstd")
        call = advised(logs, "local[1]")
    assert len({row["log"] for row in call.rows}) == 1
    assert not any(row["problem"] for row in call.rows)
    said = ", ".join(f"{kind} {mb:.0f} MB" for kind, mb in sorted(call.peaks_mb.items()))
    print(f"a log of {megabytes:g} MB, zstd, local[1]: {call.took_s:.0f} s; {said}")
    name = "advise: MB of the worker that reads one long log"
    return [(name, call.peaks_mb["worker"], GOAL_MB)]


def many_logs(count: int) -> list[tuple[str, float, float]]:
    """Logs that were judged of as many, although a worker was killed."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as directory:
        logs = Path(directory, "logs")
        for number in range(count):
            place = logs / f"eventlog_v2_app-{number}" / f"events_1_app-{number}.zstd"
            place.parent.mkdir(parents=True)
            shutil.copy(recorded_log(), place)
        call = advised(logs, f"local[{cores},4]", kills=True)
    judged = {row["log"] for row in call.rows if row["saved_hours"] is not None}
    said = ", ".join(f"{kind} {mb:.0f} MB" for kind, mb in sorted(call.peaks_mb.items()))
    lost = "one worker was killed" if call.killed else "no worker lived long enough to be killed"
    print(
        f"{count} logs, local[{cores},4]: {len(judged)} judged in {call.took_s:.0f} s, "
        f"{len(judged) / call.took_s:.1f} a second; {lost}; {said}"
    )
    return [(f"advise: of {count} logs in one call, judged", float(len(judged)), float(count))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=1000.0)
    parser.add_argument("--long", type=float, default=5000.0)
    parser.add_argument("--logs", type=int, default=1000)
    known = "speed, memory or logs; all of them by default"
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=known)
    given = parser.parse_args()
    parts = given.parts or PARTS
    from benchmarks.run import at_least, at_most, keep, show

    results, before_mb = [], _peak_mb()
    if "speed" in parts:
        results += [at_least(*each) for each in speeds(given.megabytes)]
        grown_mb = _peak_mb() - before_mb
        results.append(at_most("advise: MB of memory that reading a log adds", grown_mb, GOAL_MB))
    if "memory" in parts:
        results += [at_most(*each) for each in long_log(given.long)]
    if "logs" in parts:
        results += [at_least(*each) for each in many_logs(given.logs)]
    sizes = ("megabytes", "long", "logs")
    if any(getattr(given, name) != parser.get_default(name) for name in sizes):
        return show(results, "not kept, for the sizes are not the usual ones")
    keep(results)
    return show(results)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    sys.exit(main())
