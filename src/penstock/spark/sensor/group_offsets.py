"""Processed offsets as those of a consumer group: tools for Kafka then see the lag of a Spark job.

Spark itself keeps offsets in the checkpoint and commits none.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeAlias

from penstock.spark.sensor.offsets import Offsets

log = logging.getLogger(__name__)

#: Failures in a row until it is said: the coordinator of a new group may still load.
FAILURES = 5
#: Sends offsets and returns at once; the client's own thread fills the future.
Commit: TypeAlias = Callable[[Offsets], Future[Any]]


class GroupOffsets:
    """Commits offsets, one request at a time; `send` never waits for the brokers."""

    def __init__(self, group: str, commit: Commit) -> None:
        self._group, self._commit = group, commit
        self._sent: Offsets | None = None
        self._pending: Future[Any] | None = None
        self._failures = 0

    def send(self, processed: Offsets | None) -> None:
        """Commit these unless they are committed already, or an earlier request is on its way."""
        if not self._group or (self._pending is not None and not self._pending.done()):
            return
        try:
            if (pending := self._pending) is not None:
                self._pending = None
                for one in pending.result().topic_partitions:
                    if one.error:
                        raise RuntimeError(one.error.str())
                self._failures = 0
            if processed and processed != self._sent:
                self._pending, self._sent = self._commit(processed), processed
        except Exception as error:  # whatever it is, the lag is still measured
            self._sent = None  # to be sent again
            self._failures += 1
            if self._failures == FAILURES:
                log.warning("offsets are not committed to the group %s: %s", self._group, error)

    def close(self, processed: Offsets | None) -> None:
        """Commit for the last time."""
        self.send(processed)
        if self._pending is not None:
            with suppress(Exception):
                self._pending.result(timeout=2.0)
