"""Hostile input for everything that reads: never a traceback, a hang, or more than 200 MB."""

from __future__ import annotations

import resource
import threading
import traceback
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.http_fuzz import metrics_endpoint
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS, check

CORPUS = Path(__file__).with_name("corpus")
MOST_GROWTH_BYTES = 200 * 1024 * 1024
#: Some seconds each; `make fuzz` runs for as long as it is told.
EXAMPLES = {"http": 60, "dashboard": 80, "status_store": 80, "journal": 100}


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.fixture(autouse=True)
def _server_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a thread of a server fails with is a failure too."""

    def note(_request: object, _address: object) -> None:
        metrics_endpoint().failures.append(traceback.format_exc())

    monkeypatch.setattr("socketserver.BaseServer.handle_error", lambda _self, *at: note(*at))
    monkeypatch.setattr(
        threading, "excepthook", lambda args: metrics_endpoint().failures.append(repr(args))
    )


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.timeout(240)
def test_inputs_that_are_nearly_right_are_read_or_refused(name: str) -> None:
    target, before_bytes = TARGETS[name], peak_bytes()

    @settings(
        max_examples=EXAMPLES.get(name, 200),
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(st.data())
    def fuzz(drawn: st.DataObject) -> None:
        check(target, drawn.draw(mutated(target)))

    for seed in target.seeds:
        check(target, seed)
    fuzz()
    assert peak_bytes() - before_bytes < MOST_GROWTH_BYTES


@pytest.mark.parametrize(
    "path",
    [pytest.param(one, id=f"{one.parent.name}-{one.name}") for one in sorted(CORPUS.glob("*/*"))],
)
def test_what_was_found_once_is_not_found_again(path: Path) -> None:
    before_bytes = peak_bytes()
    check(TARGETS[path.parent.name], path.read_bytes())
    assert peak_bytes() - before_bytes < MOST_GROWTH_BYTES
