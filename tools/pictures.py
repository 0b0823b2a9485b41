"""Make the pictures of the docs again: terminals, pages in a browser, the time-lapse.

``python -m tools.pictures`` makes all of them, from the recorded journal of a demo on real Spark,
and from simulated runs; with names, only these. Pages need Chromium. ``--journal`` takes another
demo: ``penstock demo --journal demo.jsonl`` records one.
"""

from __future__ import annotations

import argparse
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from penstock.core.journal import read_last_run
from tools.timelapse import LAPSE_S, timelapse

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
IMAGES = DOCS / "images"
RECORDED = ROOT / "tests" / "recorded" / "sessions-wave.jsonl"
SLO_S = 10.0
COLUMNS = 110
#: The frame that Rich draws around a terminal, without fonts that are loaded from elsewhere.
TERMINAL = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def penstock(place: Path, *words: str) -> str:
    """What a command prints into a terminal, with its colours."""
    environment = os.environ | {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"}
    environment |= {"PYTHONPATH": str(ROOT / "src")}
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "penstock", *words]
    running = subprocess.Popen(command, cwd=place, env=environment, stdin=its, stdout=its)
    os.close(its)
    printed = b"".join(_chunks(ours)).decode().replace("\r\n", "\n")
    os.close(ours)
    if running.wait() not in (0, 1):
        raise SystemExit(f"penstock {' '.join(words)}: {printed}")
    return shown_last(printed)


def shown_last(printed: str) -> str:
    """What is left on a terminal where a view is drawn again above itself, with its colours.

    >>> shown_last("title\\nold 1\\nold 2\\r\\x1b[2K\\x1b[1A\\x1b[2Knew 1\\nnew 2")
    'title\\nnew 1\\nnew 2'
    """
    lines = [""]
    for up, end, text in re.findall(r"(\x1b\[1A)|(\n)|((?:(?!\x1b\[1A)[^\n])+)", printed):
        if up:
            lines.pop()
            lines[-1] = ""
        elif end:
            lines.append("")
        else:
            lines[-1] += re.sub(
                r"\x1b\[[0-9;?]*[A-Zac-ln-z]|\r", "", re.sub(r".*\x1b\[2K", "", text)
            )
    return "\n".join(lines)


def _chunks(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            found = os.read(terminal, 65_536)
        except OSError:  # Linux says so at the end
            return
        if not found:
            return
        yield found


def terminal(title: str, printed: str) -> str:
    """A terminal as SVG: the command and what it printed."""
    lines = re.sub(r"\n{3,}", "\n\n", printed.rstrip())
    screen = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    screen.print(Text.assemble(("$ ", "bold green"), (title, "bold")))
    screen.print(Text.from_ansi(lines), soft_wrap=False)
    name = re.sub(r"\W+", "-", title)[:24]
    return screen.export_svg(
        title="", theme=SVG_EXPORT_THEME, code_format=TERMINAL, unique_id=f"t-{name}"
    )


def simulate(place: Path, _: Path) -> None:
    words = "simulate --workload flash_crowd --duration 3h"
    shown = penstock(place, *words.split(), "--play", "0")
    _keep("simulate.svg", terminal(f"penstock {words}", shown))


def explain(place: Path, _: Path) -> None:
    words = "simulate --workload flash_crowd --duration 2h --journal explained.jsonl"
    penstock(place, *words.split(), "--play", "0")
    words = "explain explained.jsonl --kind rescale --since 59m --until 1h5m"
    shown = penstock(place, *words.split())
    _keep("explain.svg", terminal(f"penstock {words}".replace("explained", "run"), shown))


def compare(place: Path, _: Path) -> None:
    words = "compare --policy penstock hpa ds2 static:12 --workload sine flash_crowd"
    words += " --seeds 1..3 --duration 2h"
    _keep("compare.svg", terminal(f"penstock {words}", penstock(place, *words.split())))


def doctor(place: Path, _: Path) -> None:
    """The job of the tutorial, as the tutorial checks it first."""
    page = (DOCS / "tutorial.md").read_text("utf-8")
    (script,) = re.findall(r'```python title="job.py"\n(.*?)```', page, re.DOTALL)
    (place / "job.py").write_text(script, "utf-8")
    words = "doctor --max 3 job.py"
    _keep("doctor.svg", terminal(f"penstock {words}", penstock(place, *words.split())))


def lapse(_: Path, demo: Path) -> None:
    _keep("demo.svg", demo_lapse(demo))


def demo_lapse(demo: Path) -> str:
    """The time-lapse of a demo."""
    steps = read_last_run(demo)[1]
    length_s = steps[-1].at_s - steps[0].at_s
    title = f"penstock demo: {length_s / 60:.0f} minutes on real Spark in {LAPSE_S:.0f} s"
    return timelapse(steps, title, SLO_S)


def report(place: Path, demo: Path) -> None:
    penstock(place, "report", str(demo), "--out", "demo.html")
    with _page() as page:
        page.goto((place / "demo.html").as_uri())
        _shoot(page, "report.png", 1250)


def dashboard(place: Path, demo: Path) -> None:
    """Two jobs: one that is simulated with a price, and the demo."""
    from tests.prometheus import free_port

    from penstock.observe.dashboard.journals import JournalFollower
    from penstock.observe.dashboard.server import DashboardServer, JobBoard

    (place / "penstock.toml").write_text('[goal]\nprice = 0.12\ncurrency = "EUR"\n', "utf-8")
    words = "simulate --workload sine:period=1h --duration 67min --journal orders.jsonl"
    penstock(place, *words.split(), "--play", "0")
    shutil.copy(demo, place / "clicks.jsonl")
    board, port = JobBoard(), free_port()
    follower = JournalFollower([place / "orders.jsonl", place / "clicks.jsonl"], board)
    server = DashboardServer(f"127.0.0.1:{port}", board)
    follower.start()
    try:
        with _page() as page:
            page.goto(f"http://127.0.0.1:{port}/")
            page.get_by_role("link", name="orders.jsonl").click()
            page.wait_for_selector("#rows tr")
            page.wait_for_selector("#sizes td")
            _shoot(page, "dashboard.png", 2060)
    finally:
        follower.close()
        server.close()


PICTURES: dict[str, Callable[[Path, Path], None]] = {
    "simulate": simulate,
    "explain": explain,
    "compare": compare,
    "doctor": doctor,
    "lapse": lapse,
    "report": report,
    "dashboard": dashboard,
}


@contextmanager
def _page() -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    if (chromium := shutil.which("chromium")) is None:
        raise SystemExit("there is no chromium: apt-get install chromium")
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
        yield page
        browser.close()


def _shoot(page: Page, name: str, height: int) -> None:
    page.set_viewport_size({"width": 1200, "height": height})
    page.wait_for_function("document.querySelector('path.line') !== null")
    page.screenshot(path=IMAGES / name)
    print(f"docs/images/{name}")


def _keep(name: str, text: str) -> None:
    (IMAGES / name).write_text(text, encoding="utf-8")
    print(f"docs/images/{name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PICTURES)}")
    parser.add_argument("--journal", type=Path, default=RECORDED, help="the journal of a demo")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(PICTURES):
        parser.error(f"no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}")
    with tempfile.TemporaryDirectory(prefix="penstock-pictures-") as folder:
        for name in asked.names or PICTURES:
            PICTURES[name](Path(folder), asked.journal.resolve())


if __name__ == "__main__":
    main()
