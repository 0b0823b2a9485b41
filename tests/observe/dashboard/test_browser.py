"""The page in a real Chromium, on a recorded run that is played into a growing journal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.core.journal import write_all
from penstock.observe.dashboard.journals import JournalFollower
from penstock.observe.dashboard.server import TOKEN_VARIABLE, DashboardServer, JobBoard
from tests.observe.dashboard.played import Player, recorded_run
from tests.prometheus import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

PATIENCE_MS = 60_000.0
#: Every part that has to show something of a job whose policy plans.
PARTS = (
    "#tiles dd", "#limit-text b", "#over-time figure:nth-of-type(1) path.area",
    "#over-time figure:nth-of-type(1) path.line", "#over-time figure:nth-of-type(2) path.dashed",
    "#over-time figure:nth-of-type(3) path.line", "#over-time figure:nth-of-type(4) path.line",
    "#executors rect", "#stages rect", "#sizes td", "#account dd", "#rows tr",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    if (chromium := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as tool:
        found = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def serving(place: Path, port: int) -> Iterator[str]:
    """The page of some journals, as ``penstock dashboard`` serves it."""
    with ExitStack() as stack:
        board = JobBoard()
        follower = JournalFollower([place], board)
        stack.enter_context(closing(DashboardServer(f"127.0.0.1:{port}", board)))
        follower.start()
        stack.callback(follower.close)
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def opened(browser: Browser, url: str, width: int = 1200) -> Iterator[tuple[Page, list[str]]]:
    """The page, and what it complains of."""
    page, errors = browser.new_page(viewport={"width": width, "height": 900}), []
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda each: errors.append(each.text) if each.type == "error" else None)
    page.goto(url)
    yield page, errors
    page.close()


def wait_for_last_turn(page: Page, at_s: float) -> None:
    page.wait_for_function("at => job && Math.abs(job.begin_s + job.now_s - at) < 0.1", arg=at_s)


def test_every_panel_has_data_and_new_decisions_come_without_a_reload(
    browser: Browser, tmp_path: Path
) -> None:
    path, port = tmp_path / "orders.jsonl", free_port()
    with closing(Player(path)) as player, serving(path, port) as url:
        player.play(20)
        with opened(browser, url) as (page, errors):
            wait_for_last_turn(page, player.steps[19].at_s)
            page.evaluate("window.isTheSamePage = true")
            rows = page.locator("#rows tr").count()
            player.play(45)
            wait_for_last_turn(page, player.steps[44].at_s)
            assert page.locator("#rows tr").count() > rows
            first = page.locator("#rows tr").first.inner_text()
            assert player.steps[44].decision.reasons[0].text in first
            for part in PARTS:
                assert page.locator(part).count() > 0, part
            now = page.locator("#over-time figure:nth-of-type(1) line.now").bounding_box()
            fan = page.locator("#over-time figure:nth-of-type(1) path.area").bounding_box()
            assert now is not None
            assert fan is not None
            assert fan["x"] >= now["x"] - 2.0  # the fan lies ahead of now
            assert fan["width"] > 100.0
            assert page.evaluate("window.isTheSamePage") is True
            assert page.locator("#connection").inner_text() == "live"
            assert errors == []


def test_a_lost_connection_is_shown_and_recovers_when_the_driver_is_back(
    browser: Browser, tmp_path: Path
) -> None:
    path, port = tmp_path / "orders.jsonl", free_port()
    with closing(Player(path)) as player, ExitStack() as first:
        player.play(20)
        url = first.enter_context(serving(path, port))
        with opened(browser, url) as (page, errors):
            wait_for_last_turn(page, player.steps[19].at_s)
            assert errors == []
            first.close()
            page.wait_for_selector("#connection.lost")
            assert "connection lost" in page.locator("#connection").inner_text()
            player.play(30)
            with serving(path, port):
                page.wait_for_selector("#connection:not(.lost)")
                wait_for_last_turn(page, player.steps[29].at_s)
            assert [each for each in errors if "net::ERR" not in each] == []


def test_a_phone_shows_it_without_scrolling_sideways_and_a_keyboard_reads_the_charts(
    browser: Browser, tmp_path: Path
) -> None:
    header, steps = recorded_run()
    write_all(tmp_path / "orders.jsonl", steps, header)
    write_all(tmp_path / "clicks.jsonl", steps[:30], header)
    with serving(tmp_path, free_port()) as url, opened(browser, url, 390) as (page, errors):
        page.wait_for_selector("#rows tr")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#job-rows a").all_inner_texts() == ["clicks.jsonl", "orders.jsonl"]
        page.locator("#job-rows a").nth(1).press("Enter")
        wait_for_last_turn(page, steps[-1].at_s)
        assert page.locator("h1").inner_text() == "orders.jsonl"
        page.evaluate("location.hash = 'gone.jsonl'")
        page.wait_for_selector("#empty:not([hidden])")
        assert page.locator("#empty").inner_text() == "There is no job gone.jsonl here."
        page.locator("#job-rows a").nth(1).press("Enter")
        wait_for_last_turn(page, steps[-1].at_s)
        chart = page.locator("#over-time svg[role=img]").first
        assert "Load in records per second over time; now" in str(chart.get_attribute("aria-label"))
        chart.press("ArrowLeft")
        assert "expected:" in page.locator("#tip").inner_text()
        for _ in range(55):
            chart.press("ArrowLeft")
        assert "executors · delay" in page.locator("#tip").inner_text()
        chart.press("Escape")
        assert page.locator("#tip").is_hidden()
        light = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.locator("#theme").press("Enter")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert errors == []


def test_a_login_opens_the_page_and_a_text_of_a_journal_is_never_markup(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "correct horse battery")
    header, steps = recorded_run()
    name = "<img src=x onerror=alert(1)>.jsonl"
    write_all(tmp_path / name, steps[:20], header)
    with serving(tmp_path, free_port()) as url, opened(browser, url) as (page, _):
        page.get_by_label("The token of this dashboard").fill("correct horse battery")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("#rows tr")
        page.wait_for_function("name => document.title.startsWith(name)", arg=name)
        assert page.locator("h1").inner_text() == name
        assert page.locator("img").count() == 0
        assert "correct" not in page.url
