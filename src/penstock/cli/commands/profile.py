"""``penstock profile``: what each size of a real job can carry, for the policies that need it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from rich.console import Console
from rich.table import Table

from penstock.cli.options import Listed, about, amount, listed
from penstock.cli.output import check_new, console, interrupt_on_sigterm, print_json
from penstock.core.errors import ConfigError
from penstock.core.files import file_errors, write_whole
from penstock.core.phrases import executors
from penstock.lab import profile as runs
from penstock.observe.formatting import rate, seconds
from penstock.settings.notation import quantity
from penstock.testbed.demo.attached import elapsed


def profile(
    job: Annotated[str, about("profile.job")],
    /,
    *,
    sizes: Annotated[Listed, about("profile.sizes")] = None,
    shares: Annotated[Listed, about("profile.shares")] = None,
    hold: Annotated[float, amount(zero=False), about("profile.hold")] = runs.HOLD_S,
    out: Annotated[Path | None, about("profile.out")] = None,
    json: Annotated[bool, about("profile.json")] = False,
) -> int:
    """Run a job at several sizes and rates on this machine, and write what each size can carry.

    Each size runs with a fixed fleet under rising rates, of which the last should be more than it
    can carry. The steps go to a journal for each size, the profile to a JSON file beside them.
    """
    plan = runs.ProfilePlan(
        job,
        tuple(_whole(text) for text in listed(sizes)) if sizes else runs.SIZES,
        tuple(quantity(text, "--shares") for text in listed(shares)) if shares else runs.SHARES,
        hold,
    )
    out = out or Path("runs", f"profile-{job}.json")
    journals = {size: out.with_name(f"{out.stem}-{size}.jsonl") for size in sorted(plan.sizes)}
    # Refuse now what could not be written after minutes of work.
    if out.parent == Path("runs"):
        with file_errors(f"cannot make {out.parent}, name a file with --out"):
            out.parent.mkdir(exist_ok=True)
    for path in (out, *journals.values()):
        check_new(path, advice="name another file with --out")
    interrupt_on_sigterm()
    screen = console(stderr=json)
    since_s = elapsed()

    def say(line: str) -> None:
        screen.print(f"{since_s():6.1f} s  {line}")

    say(f"profiling {job}: {seconds(plan.lasts_s)} of load, and half a minute to start each size")
    found = runs.run_profile(plan, journals, say)
    result = runs.profile_of(found)
    for size in runs.unsaturated(found):
        say(
            f"no rate saturated {executors(size)}: the capacity in the profile is the highest rate "
            "that was offered, and more may be possible; give a higher share with --shares"
        )
    write_whole(out, [msgspec.json.format(msgspec.json.encode(result)) + b"\n"])
    if json:
        print_json(result)
        return 0
    _print_table(screen, found)
    screen.print(f"use it: penstock demo --job {job} --policy phoebe:profile={out}", soft_wrap=True)
    return 0


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError(f"--sizes must be whole numbers, not '{text}'")
    return int(text)


def _print_table(screen: Console, found: Sequence[runs.RateFinding]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("executors", "offered", "processed", "latency"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for one in found:
        note = "saturated" if one.is_saturated else "" if one.is_steady else "not steady"
        numbers = (rate(one.offered_rps), rate(one.processed_rps), f"{one.latency_s:.1f} s")
        table.add_row(str(one.executors), *numbers, note)
    screen.print(table)
