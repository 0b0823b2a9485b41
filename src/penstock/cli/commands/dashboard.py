"""``penstock dashboard``: a live page of journals, finished and growing."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.options import about
from penstock.cli.output import interrupt_on_sigterm, note
from penstock.observe.dashboard.journals import JournalFollower
from penstock.observe.dashboard.server import DashboardServer, JobBoard


def dashboard(
    *journals: Annotated[str, Parameter(negative=()), about("dashboard.journals")],
    at: Annotated[str, about("dashboard.at")] = "127.0.0.1:4041",
) -> int:
    """Serve a live page of journals until it is interrupted."""
    board = JobBoard()
    with ExitStack() as stack:
        places = [Path(text) for text in journals]
        follower = JournalFollower(places, board)
        server = DashboardServer(at, board)
        stack.callback(server.close)
        follower.start()
        stack.callback(follower.close)
        interrupt_on_sigterm()
        note(f"the dashboard is at http://{at}/; Ctrl-C ends it")
        threading.Event().wait()
    return 0
