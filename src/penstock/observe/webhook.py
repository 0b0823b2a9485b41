"""Notices to people: in a thread of its own, with a bounded queue; to an HTTP address."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Sequence
from queue import Full, Queue
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from penstock.observe.notices import Notice

log = logging.getLogger(__name__)

TIMEOUT_S = 5.0
#: Waits between attempts; a notice that none of them delivers is dropped.
RETRIES_S = (1.0, 4.0, 16.0)
#: Notices that wait; further ones are dropped.
MOST_WAITING = 100


class NoticeSender(ABC):
    """Sends notices; a receiver that is slow or down costs nothing but the notices.

    Of failures in a row the first is logged.
    """

    def __init__(self, receiver: str, retries_s: Sequence[float] = RETRIES_S) -> None:
        self._receiver, self._retries_s = receiver, retries_s
        self._queue: Queue[Notice | None] = Queue(MOST_WAITING)
        self._closing = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="penstock-notices", daemon=True)
        self._thread.start()

    @abstractmethod
    def post(self, notice: Notice) -> tuple[str, bool]:
        """Send it, in the thread: what went wrong, and whether another attempt may help."""

    def send(self, notice: Notice) -> None:
        """Put it into the queue and return at once."""
        try:
            self._queue.put_nowait(notice)
        except Full:
            self._warn("100 notices wait for it")

    def close(self) -> None:
        """Send what waits, without further retries, for at most some seconds."""
        self._closing.set()
        try:
            self._queue.put_nowait(None)
        except Full:
            return  # the thread ends with the process
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        while (notice := self._queue.get()) is not None:
            for wait_s in (*self._retries_s, 0.0):
                try:
                    problem, may_retry = self.post(notice)
                except OSError as error:
                    problem, may_retry = f"{getattr(error, 'reason', error)}", True
                except Exception as error:  # the thread goes on; the text may hold the address
                    problem, may_retry = type(error).__name__, True
                if not may_retry or self._closing.wait(wait_s):
                    break
            if problem:
                self._warn(problem)
            else:
                self._is_failing = False

    def _warn(self, problem: str) -> None:
        if not self._is_failing:
            log.warning("a notice for %s is dropped: %s", self._receiver, problem)
        self._is_failing = True


class Webhook(NoticeSender):
    """Posts notices to `url` as CloudEvents."""

    def __init__(self, url: str, source: str, retries_s: Sequence[float] = RETRIES_S) -> None:
        self._source, parts = source, urlsplit(url)
        login, _, place = parts.netloc.rpartition("@")
        self._url = parts._replace(netloc=place).geturl()
        self._headers = {"Content-Type": "application/cloudevents+json"}
        if login:
            self._headers["Authorization"] = f"Basic {b64encode(unquote(login).encode()).decode()}"
        # The rest of the address may hold a secret.
        super().__init__(f"the webhook at {parts.hostname}", retries_s)

    def post(self, notice: Notice) -> tuple[str, bool]:
        body = msgspec.json.encode(notice.cloud_event(self._source))
        request = Request(self._url, body, self._headers)
        try:
            with urlopen(request, timeout=TIMEOUT_S):
                return "", False
        except HTTPError as error:
            error.close()
            return f"it answers {error.code}", error.code >= 500 or error.code in (408, 429)
