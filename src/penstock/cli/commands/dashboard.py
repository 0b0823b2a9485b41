"""``penstock dashboard``: a live page of journals, finished and growing."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from penstock.cli.options import Master, about
from penstock.cli.output import interrupt_on_sigterm, note
from penstock.core.errors import ConfigError
from penstock.observe.dashboard.journals import JournalFollower
from penstock.observe.dashboard.server import DashboardServer, JobBoard

COPY_EVERY_S = 5.0


def dashboard(
    *journals: Annotated[str, about("dashboard.journals")],
    at: Annotated[str, about("dashboard.at")] = "127.0.0.1:4041",
    master: Master = None,
) -> int:
    """Serve a live page of journals, until it is interrupted."""
    if not journals:
        raise ConfigError("dashboard needs at least one journal, or a folder of them")
    board, stored = JobBoard(), [text for text in journals if "://" in text]
    with ExitStack() as stack:
        server = DashboardServer(at, board)
        stack.callback(server.close)
        places = [Path(text) for text in journals if text not in stored]
        if stored:
            places.append(stack.enter_context(copies(stored, master)))
        follower = JournalFollower(places, board)
        follower.start()
        stack.callback(follower.close)
        interrupt_on_sigterm()
        note(f"the dashboard is at http://{at}/; Ctrl-C ends it")
        threading.Event().wait()
    return 0


@contextmanager
def copies(uris: list[str], master: str | None) -> Iterator[Path]:
    """A folder with what stores have of journals, kept up to date by Spark's file systems."""
    from penstock.spark.internals import JVM_ERRORS, Driver, first_line
    from penstock.spark.store_journal import copy_parts
    from penstock.testbed.sessions import open_session

    over = threading.Event()
    with (
        TemporaryDirectory(prefix="penstock-") as folder,
        open_session("penstock-dashboard", master) as spark,
    ):
        driver = Driver(spark)

        def copy_all() -> None:
            for uri in uris:
                copy_parts(driver, uri, Path(folder))

        def run() -> None:
            while not over.wait(COPY_EVERY_S):
                with suppress(*JVM_ERRORS, OSError):  # the store may be away for a while
                    copy_all()

        try:
            copy_all()
        except JVM_ERRORS as error:
            raise ConfigError(f"cannot read {', '.join(uris)}: {first_line(error)}") from None
        thread = threading.Thread(target=run, name="penstock-copies", daemon=True)
        thread.start()
        try:
            yield Path(folder)
        finally:
            over.set()
            thread.join(timeout=5.0)
