"""What is fuzzed: each target takes any bytes and must not fail, hang or fill the memory.

`run` raises what is a bug. What Penstock refuses in one sentence (`PenstockError`) is no bug.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from penstock.core.errors import PenstockError, SensorError
from penstock.core.journal import FileJournal, JournalHeader, read_header, read_last_run, read_tail
from penstock.core.model import Batch, Decision, Fleet, Reason, Snapshot, Step
from penstock.lab.advise.events import gather
from penstock.lab.advise.logs import LogFile, lines
from penstock.settings import notation
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.spark_conf import read_spark_conf
from penstock.settings.toml import parse, settle
from penstock.simulation.faults import read_fault
from penstock.simulation.workloads.expressions import parse_workload
from penstock.simulation.workloads.traces import Trace
from penstock.spark.sensor.kafka import Brokers, KafkaWatch
from penstock.spark.sensor.offsets import Offsets
from penstock.spark.sensor.progress import Partition, SourceProgress, parse_progress
from tests.fuzz.http_fuzz import TOKEN, ask, dashboards, metrics_endpoint, send
from tests.fuzz.spark_answers import ANSWERS, read_sensor

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Target:
    """`seeds` are good inputs, from which fuzzed ones are made; `tokens` are put into them."""

    name: str
    run: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = ()


def check(target: Target, data: bytes) -> None:
    """Run it. Warnings are for the user, so they are no failure; refusals in a sentence neither."""
    with warnings.catch_warnings(), suppress(PenstockError):
        warnings.simplefilter("ignore")
        target.run(data)


@cache
def _directory() -> Path:
    return Path(tempfile.mkdtemp(prefix="penstock-fuzz-"))


def _file(name: str, data: bytes) -> Path:
    path = _directory() / f"{os.getpid()}-{name}"
    path.write_bytes(data)
    return path


def _each(calls: Iterable[Callable[[str], object]], text: str) -> None:
    for call in calls:
        with suppress(PenstockError):
            call(text)


def _notation(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    readers: Sequence[Callable[[str], object]] = (
        notation.parse, notation.split_list, notation.quantity, read_policy_spec, parse_workload,
        read_fault,
    )  # fmt: skip
    _each(readers, text)


def _toml(data: bytes) -> None:
    parse(data.decode("utf-8", "replace"), "fuzz")


def _spark_conf(data: bytes) -> None:
    pairs = (line.partition("=") for line in data.decode("utf-8", "replace").split("\n"))
    settle({"conf": read_spark_conf({f"spark.penstock.{key}": text for key, _, text in pairs})})


def _journal(data: bytes) -> None:
    path = _file("journal.jsonl", data)
    readers: Sequence[Callable[[Path], object]] = (
        read_header, read_last_run, lambda one: list(read_tail(one)),
    )  # fmt: skip
    for read in readers:
        with suppress(PenstockError):
            read(path)
    step = Step(0.0, None, Decision.of(3, Reason("sensor_blind", "holding")))
    with FileJournal(path, JournalHeader.of({"policy": "fuzz"}), fsync="never") as journal:
        journal.write(step)
    assert list(read_tail(path))[-1] == step


def _trace(data: bytes) -> None:
    path = _file("trace.csv", data)
    rates = Trace(str(path), hours=0.1).rates(60, 1, lambda executors: 1000.0 * executors)
    assert len(rates) == 60
    assert all(0.0 <= rate < float("inf") for rate in rates)


def _event_log(data: bytes) -> None:
    gather(LogFile("log", "log"), lines(BytesIO(data)), 3600.0)


def _store(data: bytes) -> None:
    try:
        answers = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # Spark's own writer makes valid JSON
    if isinstance(answers, dict):
        read_sensor(ANSWERS | answers)


class FuzzedBrokers(Brokers):
    """Answers from a list: whole numbers, or nothing."""

    def __init__(self, answers: list[Any]) -> None:
        self._rest = iter(answers)

    def end_offsets(self, partitions: Iterable[Partition]) -> Offsets:
        return self._next(partitions)

    def offsets_at(self, partitions: Iterable[Partition], at_s: float) -> Offsets:
        return self._next(partitions)

    def _next(self, partitions: Iterable[Partition]) -> Offsets:
        answer = next(self._rest, None)
        if not isinstance(answer, int) or isinstance(answer, bool):
            raise SensorError("no answer")
        return dict.fromkeys(islice(partitions, 1 + answer % 3), answer)


def _kafka(data: bytes) -> None:
    try:
        answers = msgspec.json.decode(data, type=list[int | str | None])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    watch = KafkaWatch(FuzzedBrokers(answers), every_s=3600.0)
    try:
        for turn in range(4):
            done = {"bids": {"0": 10 * turn, "1": 5, "2": 0}}
            watch.take(Batch(turn, 0.0, 1.0, 1), SourceProgress(done))
            seen = watch.read(0.0, lambda: None)
            Snapshot(
                at_s=0.0, fleet=Fleet(1, 1, 1), arrival_rps=seen.arrival_rps,
                backlog_records=seen.backlog_records, delay_s=seen.delay_s,
            )  # fmt: skip
    finally:
        watch.close()


def _http(data: bytes) -> None:
    endpoint = metrics_endpoint()
    endpoint.failures.clear()
    send(endpoint.address, data)
    assert ask(endpoint.address, b"/metrics").startswith(b"HTTP/1.0 200"), "it answers no more"
    assert not endpoint.failures, endpoint.failures


def _dashboard(data: bytes) -> None:
    for page in dashboards():
        page.failures.clear()
        answer = send(page.address, data)
        if answer.startswith(b"HTTP/"):  # an older protocol has no headers
            assert b"default-src 'none'" in answer, "an answer without our headers"
        assert ask(page.address, b"/page.css").startswith(b"HTTP/1.0 200"), "it answers no more"
        assert not page.failures, page.failures


def _recorded(pattern: str) -> bytes:
    return next((TESTS / "recorded").glob(pattern)).read_bytes()


def _progress_seeds() -> tuple[bytes, ...]:
    cases = msgspec.json.decode((TESTS / "spark/sensor/progress_reports.json").read_bytes())
    return tuple(msgspec.json.encode(case["report"]) for case in cases[:12])


_LOG = b"\n".join((
    b'{"Event":"SparkListenerApplicationStart","App Name":"a","App ID":"x","Timestamp":1}',
    b'{"Event":"SparkListenerEnvironmentUpdate","Spark Properties":{"spark.master":"local"}}',
    b'{"Event":"SparkListenerExecutorAdded","Timestamp":5,"Executor ID":"1",'
    b'"Executor Info":{"Total Cores":2}}',
    b'{"Event":"SparkListenerStageSubmitted","Stage Info":{"Stage ID":1},'
    b'"Properties":{"streaming.sql.batchId":"7","spark.jobGroup.id":"r"}}',
    b'{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":1,"Number of Tasks":2,'
    b'"Submission Time":10,"Completion Time":90,'
    b'"Accumulables":[{"Name":"internal.metrics.executorRunTime","Value":"8"}]}}',
    b'{"Event":"org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",'
    b'"progress":' + _progress_seeds()[0] + b"}\n",
))  # fmt: skip
_TOML = b"""[policy]
name = "ds2:cooldown=60s"
[limits]
max_executors = 16
[[schedule]]
cron = "*/15 8-18 * * mon-fri"
duration = "2h"
timezone = "Europe/Berlin"
min_executors = 4
[goal]
slo_s = 5.0
[journal]
path = "live.jsonl"
[live]
metrics = "127.0.0.1:9404"
"""
_NUMBERS = (
    b"-1",
    b"0",
    b"1e999",
    b"NaN",
    b"-0.0",
    b"1e308",
    b"9" * 40,
    b"9" * 5000,
    b"null",
    b'""',
)
_TOKEN = TOKEN.encode()
_JSON = (*_NUMBERS, b"[", b"]", b"{", b"}", b'"', b"[" * 3000, b'{"a":' * 3000, b"true", b"\xff")

TARGETS = {
    target.name: target
    for target in (
        Target("notation", _notation, (
            b"hpa:cpu_target=0.8,tolerance=10%", b"trace:load.csv,hours=24", b"2h20min", b"1.5M",
            b'hpa:behavior={"scale_down":{"window_s":60}}', b"executor_lost:at=2h",
            b"sine:period=1h + 0.5 * constant:50k then flash_crowd for 2h",
        ), (*_NUMBERS, b":", b",", b"=", b"(", b"((((" * 500, b"|", b"+", b"*", b" then ", b" for ",
            b"\0", b"1e400h", b"penstock:", b"ds2:", b"\xc2\xb2", b"\xd9\xa3")),
        Target("toml", _toml, (_TOML,), (
            *_NUMBERS, b"[", b"[[", b"]", b"= [", b"[" * 2000, b"a." * 2000, b'"""', b"1979-05-27",
            b"inf", b"nan", b"99999-01-01", b"00:61:00", b"\0", b"\xd9\xa3",
        )),
        Target("spark_conf", _spark_conf, (
            b"maxExecutors=16\npolicy=ds2:cooldown=60s\nslo=5s\nmetrics=127.0.0.1:9404",
            b'schedule=[{"cron":"0 8 * * *","duration_s":60,"quiet":true}]\njournal=live.jsonl',
        ), (*_JSON, b"\n", b"=", b"true", b"webhook=", b"cluster=", b"every=", b"\xd9\xa3")),
        Target("journal", _journal, (
            _recorded("udf-busy.jsonl")[:6000], _recorded("journal-0.1.jsonl")[:3000],
        ), (*_JSON, b"\n", b"\n\n", b'"snapshot":null', b'"version":2')),
        Target("trace", _trace, (
            b"time,rate\n0,100\n60,200\n120,150\n",
            b"2026-01-01T00:00:00;5\n2026-01-01T00:01:00;6\n",
            b"# load\n5\n6\n7\n", b'"t"\t"value"\n1e3\t5\n2e3\t6\n',
        ), (*_NUMBERS, b",", b";", b"\n", b'"', b"\r", b"\0", b"0001-01-01",
            b"9999-12-31T23:59:59-23:59",
            b"\xef\xbb\xbf", b"a" * 200_000, b"\xe2\x80\xa8")),
        Target("event_log", _event_log, (
            _LOG,
            next((TESTS / "lab/advise/recorded").glob("*/events_*")).read_bytes()[:20_000],
            b"LZ4Block\x10\x0a\0\0\0\x0a\0\0\0\0\0\0\0" + b'{"Event":"',
            b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1\0\0\0\x05\x03\x08abc",
        ), (*_JSON, b"\n", b"LZ4Block", b"\xff\xff\xff\x0f", b"\x82SNAPPY\x00", b"\x28\xb5\x2f\xfd",
            b"\xff\xff\xff\xff\x0f")),
        Target("progress", parse_progress, _progress_seeds(), (
            *_JSON, b'"-1"', b'{"bids":{"0":5}}', b'{"bids":{"\xc2\xb2":5}}',
            b'"0001-01-01T00:00:00Z"',
            b'"1900-01-01T00:00:00Z"', b"1e22",
        )),
        Target("status_store", _store, (msgspec.json.encode(ANSWERS),), (
            *_NUMBERS, b"[]", b"{}", b"true", b'"1900-01-01T00:00:00.000GMT"', b'"ACTIVE"',
            b'"FAILED"',
            b'"RUNNING"', b'"99999999999999999999.0 h (stage 1.0: task 66)"', b'"1"',
            b"1e300", b"-5e300",
        )),
        Target("kafka", _kafka, (b"[100,200,300,50,0,7,8,9,10]", b'[5,null,"x",3,1,2,90000]'), (
            b"-1", b"-2", b"-1001", b"9223372036854775807", b"null", b"0", b",",
        )),
        Target("http", _http, (
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        ), (b"\r\n", b" ", b"/" * 70_000, b"HTTP/9.9", b"Content-Length: -1\r\n", b"\0", b"\xff",
            b"Content-Length: 99999999999999999999\r\n", b"X: y\r\n" * 200, b"?name[]=a&name[]=%ff",
            b"Accept-Encoding: gzip\r\n", b"Transfer-Encoding: chunked\r\n", b"..%2f..%2f",
            b"Accept: application/openmetrics-text;version=x\r\n", b"name[]=" * 1000)),
        Target("dashboard", _dashboard, (
            b"GET /data?job=orders HTTP/1.1\r\nHost: localhost\r\nCookie: penstock-1=2\r\n\r\n",
            b"GET /events HTTP/1.1\r\nHost: [::1]:80\r\nAuthorization: Bearer %b\r\n\r\n" % _TOKEN,
            b"POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 27\r\n\r\ntoken=%b" % _TOKEN,
            b"HEAD /page.js HTTP/1.0\r\n\r\n",
        ), (b"\r\n", b" ", b"/" * 70_000, b"//[", b"[", b"]", b"%00", b"%ff", b"\0", b"\xff",
            b"HTTP/9.9", b"Host: [\r\n", b"Host: ]:x\r\n", b"Cookie: penstock-1\r\n",
            b'Cookie: a="\\377\r\n',
            b"Content-Length: -1\r\n", b"Content-Length: \xb2\r\n", b"Content-Length: 5000\r\n",
            b"9" * 5000, b"Authorization: Bearer\r\n", b"X: y\r\n" * 200, b"&job=" * 2000,
            b"/login", b"/events", b"http://", b"#", b"?", b"GET", b"HEAD", b"POST", b"BREW")),
    )
}  # fmt: skip
