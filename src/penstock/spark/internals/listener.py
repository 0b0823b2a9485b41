"""A listener to queries that the Java process calls back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Listener:
    """A ``StreamingQueryListener`` as the Java process sees it. It must return at once."""

    def __init__(self, hand_over: Callable[[str], None]) -> None:
        self._hand_over = hand_over

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._hand_over(str(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
