"""``penstock tune``: search a policy's parameters, and write what was found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from penstock.cli.commands.compare import check
from penstock.cli.commands.execution import ExecutionOptions, SweepRunner
from penstock.cli.commands.init import document, toml
from penstock.cli.commands.options import Listed, RunOptions, listed, seed_numbers
from penstock.cli.views.output import console, print_json
from penstock.core.errors import ConfigError
from penstock.core.files import check_place
from penstock.core.model import Limits
from penstock.lab.experiments.tournament import Cell, Row
from penstock.lab.experiments.tuning import (
    Dimension,
    Judged,
    Round,
    Split,
    Tuning,
    candidates,
    space,
    split,
    values_of,
)
from penstock.lab.experiments.tuning import tune as search
from penstock.observe.report import write
from penstock.settings.goal import Goal
from penstock.settings.notation import parse as parse_notation
from penstock.settings.notation import quantity
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.toml import FILE_NAME, parse


def tune(
    policy: str,
    /,
    *,
    workload: Listed = None,
    validate: Listed = None,
    engine: Listed = None,
    seeds: Listed = None,
    parameter: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    most: Annotated[int, Parameter(name="--candidates")] = 27,
    draw: int = 1,
    options: RunOptions | None = None,
    carrying: ExecutionOptions | None = None,
    out: Path = Path(FILE_NAME),
    force: Annotated[bool, Parameter(help="Replace the file if it is there.")] = False,
    json: Annotated[bool, Parameter(help="The search as one JSON document.")] = False,
) -> int:
    """Search a policy's parameters over workloads by successive halving.

    All candidates meet each load once, the better third goes on to more seeds, and so on. The best
    has to beat the policy's defaults on runs that were held back; then it is written.

    Parameters
    ----------
    policy
        The policy; parameters that its text sets stay as they are.
    workload
        Loads to tune on, each in the one-line notation; sine without it.
    validate
        More loads that only validate.
    engine
        micro-batch, continuous, or both.
    seeds
        Seeds as numbers or ranges; the last third only validates. 1..6 without it.
    parameter
        What to search, e.g. window or window=30s..5min; all numbers without it, each from a
        quarter of its default to four times of it.
    most
        How many candidates are drawn.
    draw
        The seed by which they are drawn.
    out
        Where the settings go.
    """
    options, carrying = options or RunOptions(), carrying or ExecutionOptions()
    settings = options.settings()
    goal, bounds = options.goal(settings), options.bounds(settings)
    if most < 1:
        raise ConfigError(f"--candidates must be at least 1, not {most}")
    _check_place(out, force=force)
    dimensions = space(policy, ranges(parameter or ()))
    drawn = candidates(policy, dimensions, most, draw)
    parts = split(
        listed(workload or ["sine"]),
        listed(validate or ()),
        listed(engine or ["micro-batch"]),
        seed_numbers(seeds or ["1..6"]),
        duration_s=options.duration_s(),
        start_executors=options.start,
        faults=options.faults(),
    )
    every = [run for runs in (*parts.training, parts.validation) for run in runs]
    check([Cell(policy, run, goal, bounds) for run in every])
    with carrying.stage() as stage:
        found = _search(policy, drawn, parts, goal, bounds, stage, quiet=json)
    if found.better:
        write(out, settings_text(found, goal, bounds, str(out)))
    if json:
        print_json(_facts(found, dimensions, goal, out))
    else:
        _show(found, dimensions, out)
    return 0 if found.better else 1


def ranges(texts: Sequence[str]) -> dict[str, tuple[float, float] | None]:
    """The parameters to search, with their ranges where they are given.

    >>> ranges(["overprovisioning", "window=30s..2min"])
    {'overprovisioning': None, 'window': (30.0, 120.0)}
    """
    found: dict[str, tuple[float, float] | None] = {}
    for text in (piece.strip() for each in texts for piece in each.split(",")):
        key, equals, span = (part.strip() for part in text.partition("="))
        low, dots, high = span.partition("..")
        if not key or (equals and not dots):
            raise ConfigError(f"--parameter must be key or key=low..high, not '{text}'")
        if key in found:
            raise ConfigError(f"--parameter names {key} twice")
        what = f"--parameter {key}"
        found[key] = (quantity(low, what), quantity(high, what)) if equals else None
    return found


def _check_place(out: Path, *, force: bool) -> None:
    if out.is_file() and not force:
        raise ConfigError(f"{out} exists already: name another place with --out, or add --force")
    check_place(out)


def _search(
    policy: str,
    drawn: Sequence[str],
    parts: Split,
    goal: Goal,
    bounds: dict[str, Any],
    stage: SweepRunner,
    *,
    quiet: bool,
) -> Tuning:
    def play(cells: Sequence[Cell]) -> list[Row]:
        return stage.play("tuning", cells)

    def tell(one: Round) -> None:
        if not quiet:
            best = one.candidates[0].cost_ratio
            runs = "1 run" if one.runs == 1 else f"{one.runs} runs"
            word = f"{len(one.candidates)} candidates on {runs} each: "
            console().print(word + f"the best costs {best:.3f} of the defaults", highlight=False)

    return search(policy, drawn, parts, goal, bounds, play, tell)


# What is told ----------------------------------------------------------------------------------


def _show(found: Tuning, dimensions: Sequence[Dimension], out: Path) -> None:
    screen = console()
    screen.print()
    screen.print(_table(found, dimensions))
    screen.print("cost as a multiple of that of the defaults on the same runs", style="dim")
    if found.better:
        saved = 1.0 - found.found.cost_ratio
        text = f"{out}  (costs {saved:.1%} less than the defaults on the runs held back)"
    else:
        text = f"nothing is better than the defaults of {found.defaults}: no file is written"
    screen.print(text, markup=False)


def _table(found: Tuning, dimensions: Sequence[Dimension]) -> Table:
    """The finalists below each other: values, cost in training and on what was held back."""
    table = Table(box=None, pad_edge=False)
    names = [each.name for each in dimensions]
    table.add_column("", overflow="fold")
    trained = {each.policy: each for each in found.rounds[-1].candidates}
    held = found.validated
    numbers = count(1)
    for each in held:
        title = "defaults" if each.policy == found.defaults else f"candidate {next(numbers)}"
        table.add_column(title, justify="right", overflow="fold")
    settings = [_settings(each.policy, names) for each in held]
    for name in names:
        table.add_row(Text(name), *(f"{values[name]:g}" for values in settings))
    table.add_row("cost, tuned on", *(_trained(trained.get(each.policy)) for each in held))
    table.add_row("cost, held back", *(f"{each.cost_ratio:.3f}" for each in held), style="bold")
    table.add_row("executor-hours, held back", *(f"{each.executor_hours:.1f}" for each in held))
    table.add_row("late %, held back", *(f"{100 * each.late_fraction:.2f}" for each in held))
    return table


def _trained(judged: Judged | None) -> str:
    return "1.000" if judged is None else f"{judged.cost_ratio:.3f}"


def _settings(policy: str, names: Sequence[str]) -> dict[str, Any]:
    entry = read_policy_spec(policy)
    return {
        name: getattr(entry.policy if hasattr(entry.policy, name) else entry.limits, name)
        for name in names
    }


def _facts(found: Tuning, dimensions: Sequence[Dimension], goal: Goal, out: Path) -> dict[str, Any]:
    return {
        "better": found.better,
        "found": values_of(found.found.policy, goal) if found.better else {},
        "written": str(out) if found.better else None,
        "searched": dimensions,
        "rounds": found.rounds,
        "validated": found.validated,
    }


# What is written -------------------------------------------------------------------------------


def settings_text(found: Tuning, goal: Goal, bounds: Mapping[str, Any], where: str) -> str:
    """A penstock.toml with every setting explained and the found ones set."""
    policy = found.found.policy
    entry = read_policy_spec(policy, bounds, goal)
    name = parse_notation(policy).name
    changed = {
        "policy": values_of(policy, goal),
        "limits": _differing(entry.limits, type(entry.policy).default_limits) | dict(bounds),
        "goal": _differing(goal, Goal()),
    }
    text = filled(document(name), changed)
    head = (
        f"# Found by `penstock tune {name}`: costs {found.found.cost_ratio:.3f} of what the "
        "defaults cost\n# on runs that it was not tuned on.\n"
    )
    settings = parse(head + text, where)
    if settings.policy != entry.policy or settings.limits != entry.limits:
        raise AssertionError(f"{where} would not say what was found: {policy}")
    return head + text


def filled(text: str, changed: Mapping[str, Mapping[str, Any]]) -> str:
    """A commented document with some settings uncommented and set, by table.

    >>> print(filled("[policy]\\n# How many.\\n# executors = 12\\n", {"policy": {"executors": 4}}))
    [policy]
    # How many.
    executors = 4
    <BLANKLINE>
    """
    table: Mapping[str, Any] = {}
    lines = []
    for line in text.splitlines():
        if head := re.fullmatch(r"\[(\w+)\]", line):
            table = changed.get(head[1], {})
        setting = re.match(r"# (\w+)(?: = |: not set)", line)
        if setting and setting[1] in table:
            line = f"{setting[1]} = {toml(table[setting[1]])}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _differing(value: Limits | Goal, plain: Limits | Goal) -> dict[str, Any]:
    now, before = msgspec.structs.asdict(value), msgspec.structs.asdict(plain)
    return {name: now[name] for name in now if now[name] != before[name]}
