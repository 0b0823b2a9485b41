"""How fast event logs are read, and how much memory that takes.

    python -m benchmarks.advise_speed [--megabytes 1000]

The recorded log of the tests is written again and again, with as many ends of tasks as Spark
writes, until it is that long. Each format is read on one core by what a task of `penstock advise`
runs; megabytes are those of the log before it was compressed.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.lab.advise.logs import LogFile, lines
from penstock.lab.advise.pipeline import read_here
from penstock.lab.experiments import lab_module

RECORDED = Path("tests/lab/advise/recorded")
#: The recorded log has one end of a task in ten.
TASK_ENDS = 10
GOAL_MB_PER_S = 20.0
#: What reading may add to the memory of the process, whatever the length of the log.
GOAL_MB = 200.0


def repeated(most_bytes: int) -> Iterator[bytes]:
    """The recorded log, as a whole and as often as it takes; time goes on between the copies."""
    (place,) = RECORDED.glob("eventlog_v2_*/events_*")
    with place.open("rb") as file:
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


def speeds(megabytes: float = 100.0) -> list[tuple[str, float, float]]:
    """What one core reads in a second, in each format; with its goal."""
    arrow = lab_module("pyarrow", "this benchmark")
    results = []
    with tempfile.TemporaryDirectory() as directory:
        for codec in (None, "zstd"):
            place = Path(directory, f"log-{codec}")
            size = 0
            with arrow.output_stream(str(place), compression=codec) as stream:
                for line in repeated(int(megabytes * 1e6)):
                    stream.write(line)
                    size += len(line)
            begin_s = time.process_time()
            part = read_here(86_400.0, LogFile(str(place), f"file:{place}"))
            took_s = time.process_time() - begin_s
            assert part.reports
            assert not part.problem
            name = f"advise: MB/s of event log on one core, {codec or 'plain'}"
            results.append((name, size / 1e6 / took_s, GOAL_MB_PER_S))
            place.unlink()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1000.0)
    megabytes = parser.parse_args().megabytes
    before_mb = _peak_mb()
    for name, value, _ in speeds(megabytes):
        print(f"{value:9.0f}  {name}")
    grown_mb = _peak_mb() - before_mb
    print(f"{grown_mb:9.0f}  MB of memory for {megabytes:g} MB of log, goal {GOAL_MB:g}")
    return int(grown_mb > GOAL_MB)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


if __name__ == "__main__":
    sys.exit(main())
