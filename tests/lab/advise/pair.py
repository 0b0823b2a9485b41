"""The recorded pair: a real job with a fixed fleet, and the same load scaled for real.

What is promised from the first log is compared with what the second one shows.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

from penstock.lab.advise.advice import Advice, Question, advise_on
from penstock.lab.advise.events import LogPart
from penstock.lab.advise.logs import LogFile
from penstock.lab.advise.pipeline import read_here
from penstock.settings.goal import Goal

HERE = Path(__file__).parent
FIXED, SCALED = HERE / "recorded", HERE / "recorded_scaled"
ABOUT = HERE / "pair.json"
DOCS = HERE.parents[2] / "docs" / "advise.md"
BEGIN, END = "<!-- The recorded pair -->\n", "<!-- End of the recorded pair -->\n"
#: How near a promise has to be: a part of the executors, and of all records.
MOST_OFF, MOST_LATE_OFF = 0.15, 0.01


class About(Struct, frozen=True):
    """What was recorded: the policy in the time of the recordings, and the load in words."""

    policy: str
    max_executors: int
    load: str
    speed: float


class Promise(Struct, frozen=True):
    """What was promised, and what a real run then used."""

    about: About
    promised: Advice
    real: Advice

    @property
    def off(self) -> float:
        """How far the promised executors are from the real ones, as a part of these."""
        return (self.promised.needed_executors or 0.0) / (self.real.paid_executors or 1.0) - 1.0

    @property
    def late_off(self) -> float:
        promised, real = self.promised.needed_late_fraction, self.real.late_fraction
        return (promised or 0.0) - (real or 0.0)

    @property
    def holds(self) -> bool:
        return abs(self.off) <= MOST_OFF and abs(self.late_off) <= MOST_LATE_OFF

    def text(self) -> str:
        """The paragraph of docs/advise.md."""
        about, then, real = self.about, self.promised, self.real
        return (
            f"A Nexmark job (q1, 12 partitions, {about.load}) was recorded with "
            f"{then.paid_executors:.0f} executors.\n"
            f"A job that was fitted to the first half predicts the second with an error of "
            f"{then.error:.1%}. `penstock`,\nwith its time spans divided by {about.speed:.1f}, "
            f"was promised {then.needed_executors:.1f} executors on average and "
            f"{then.needed_late_fraction:.1%} late records.\nThe same load scaled for real then "
            f"used {real.paid_executors:.1f} executors with {real.late_fraction:.1%} late: the "
            f"promise was {abs(self.off):.0%} too {'low' if self.off < 0.0 else 'high'}.\n"
            "This is one pair on one small machine; take promises as estimates.\n"
        ).replace("%", " %")


def log_file(folder: Path) -> LogFile:
    (place,) = folder.glob("eventlog_v2_*/events_*")
    return LogFile(folder.name, f"file:{place}", number=1)


@cache
def part_of(folder: Path) -> LogPart:
    return read_here(86_400.0, log_file(folder))


def about_pair() -> About:
    return msgspec.json.decode(ABOUT.read_bytes(), type=About)


def question(*policies: str) -> Question:
    return Question(policies, Goal(price=0.25), most=about_pair().max_executors, in_money=True)


def promise() -> Promise:
    about = about_pair()
    (promised,), (real, *_) = (
        advise_on(question(about.policy), folder.name, [log_file(folder), part_of(folder)]).rows
        for folder in (FIXED, SCALED)
    )
    return Promise(about, promised, real)


def write_docs(text: str) -> None:
    """Put the paragraph into docs/advise.md."""
    page = DOCS.read_text("utf-8")
    before, _, rest = page.partition(BEGIN)
    DOCS.write_text(before + BEGIN + text + END + rest.partition(END)[2], "utf-8")
