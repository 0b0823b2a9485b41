"""A tournament as people see it: the table on any screen, and the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.cli.views.comparison_page import comparison_page, cost_parts
from penstock.cli.views.ranking import ranking
from penstock.lab.experiments.tournament import Standing
from penstock.settings.goal import Goal

GOAL = Goal()
LONG = "ds2:overprovisioning=0.5,window=2min,least_shrink=3,sharing=max"


def standing(
    policy: str, cost: float, *, load: str = "sine", regret: float | None = None, seeds: int = 3
) -> Standing:
    return Standing(
        policy=policy, workload=load, engine="micro-batch", seeds=seeds, executor_hours=10.0,
        mean_executors=2.0, p50_s=1.0, p95_s=2.5, p99_s=1234.5, late_fraction=0.0123,
        rescales=14.0, moved_executors=60.0, cost=cost, cost_interval=0.4, regret=regret,
    )  # fmt: skip


def printed(group: list[Standing], width: int) -> list[str]:
    screen = Console(width=width, color_system=None, highlight=False)
    with screen.capture() as captured:
        screen.print(*ranking(group, GOAL, width), sep="\n")
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 120, 200])
def test_no_name_is_cut_and_no_line_too_long_on_any_screen(width: int) -> None:
    group = [standing("penstock", 11.0, regret=0.1), standing(LONG, 12.0, regret=0.2),
             standing("backlog_threshold", 123456.7, regret=9999.0)]  # fmt: skip
    lines = printed(group, width)
    assert max(map(len, lines)) <= width
    assert not [line for line in lines if "…" in line]
    # A name that is folded is still whole when its pieces, left of the numbers, are put together.
    names = "".join(line[3:].split("  ")[0].strip() for line in lines)
    for name in ("penstock", LONG, "backlog_threshold"):
        assert name in names
    assert "123456.7" in "".join(lines)


def test_eighty_columns_hold_what_ranks_and_say_what_is_missing() -> None:
    lines = printed([standing("penstock", 11.0, regret=0.1), standing("hpa", 12.0, regret=0.2)], 80)
    for name in ("cost", "regret", "exec-h", "p95 s", "late % > 10 s", "± 95 %"):
        assert name in lines[0]
    assert lines[-1].startswith("no room for ") or "moved" in lines[0]


def test_a_column_that_says_nothing_is_not_shown() -> None:
    lines = printed([standing("penstock", 11.0, seeds=1)], 200)
    assert "regret" not in lines[0]
    assert "±" not in lines[0]


class Page(HTMLParser):
    """The tags of a page with their attributes, and what stands in its cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def two_loads() -> list[Standing]:
    return [
        standing("penstock", 11.5, regret=0.05), standing("hpa", 60.0, regret=4.5),
        standing("hpa", 20.0, load="spikes", regret=0.9),
        standing("penstock", 21.0, load="spikes", regret=1.0),
    ]  # fmt: skip


def test_the_page_ranks_each_load_and_all_of_them() -> None:
    page = Page(comparison_page(two_loads(), GOAL))
    assert "2 policies on 2 loads" in page.text
    # Over both loads penstock has (0.05 + 1.0) / 2, hpa (4.5 + 0.9) / 2.
    assert re.search(r"penstock\s*0\.525.*hpa\s*2\.700", page.text, re.DOTALL)
    assert page.text.index("sine on micro-batch") < page.text.index("spikes on micro-batch")


def test_the_parts_of_a_cost_add_up_and_a_bar_beyond_the_scale_is_broken_off() -> None:
    assert sum(cost_parts(standing("hpa", 20.0), GOAL)) == pytest.approx(20.0)
    bars = [a for tag, a in Page(comparison_page(two_loads()[:2], GOAL)).tags
            if tag == "div" and (a.get("class") or "").startswith("parts")]  # fmt: skip
    # 60 is more than four times 11.5.
    assert [bar["class"] for bar in bars] == ["parts", "parts beyond"]


def test_the_page_without_an_oracle_measures_against_the_cheapest() -> None:
    table = [standing("a", 10.0), standing("b", 15.0),
             standing("b", 10.0, load="spikes"), standing("a", 40.0, load="spikes")]  # fmt: skip
    text = Page(comparison_page(table, GOAL)).text
    assert "above the cheapest = cost / cost of the cheapest on that load - 1" in text
    assert re.search(r"b\s*0\.250.*a\s*1\.500", text, re.DOTALL)  # (0.5 + 0) / 2, (0 + 3) / 2


def test_the_page_loads_nothing_and_fits_into_kilobytes() -> None:
    html = comparison_page(two_loads(), GOAL)
    page = Page(html)
    assert not [a for _, a in page.tags if a.get("src") or (a.get("href") or "data:,") != "data:,"]
    assert "http" not in html.replace("http-equiv", "")
    assert len(html) < 40_000


@given(st.text(max_size=30))
def test_no_name_becomes_markup(name: str) -> None:
    plain = comparison_page([standing("a", 10.0, load="b")], GOAL)
    html = comparison_page([standing(name, 10.0, load=name)], GOAL)
    assert [tag for tag, _ in Page(html).tags] == [tag for tag, _ in Page(plain).tags]


@given(st.lists(st.floats(0.0, 1e6), min_size=2, max_size=6))
def test_every_bar_and_dot_stays_on_its_scale(costs: list[float]) -> None:
    ordered = sorted(costs)
    table = [
        standing(f"p{place}", cost, load=load, regret=cost / 10.0)
        for load in ("sine", "spikes")
        for place, cost in enumerate(ordered)
    ]
    html = comparison_page(table, GOAL)
    places = [float(text) for text in re.findall(r"(?:left|width):([\d.]+)%", html)]
    assert all(0.0 <= place <= 100.01 for place in places)
