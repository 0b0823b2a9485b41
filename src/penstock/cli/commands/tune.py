"""``penstock tune``: search a policy's parameters, and write what was found."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import msgspec
from rich.table import Table
from rich.text import Text

from penstock.cli.commands.init import document
from penstock.cli.execution import ExecutionOptions, check_runs
from penstock.cli.options import GridOptions, Listed, RunOptions, about, bounds_of, listed, whole
from penstock.cli.output import check_new, console, print_json
from penstock.core.errors import ConfigError
from penstock.core.files import write_whole
from penstock.core.model import Limits
from penstock.core.phrases import counted
from penstock.lab.experiments import tuning
from penstock.lab.experiments.tournament import Cell
from penstock.lab.experiments.tuning import Dimension, Round, Tuning
from penstock.settings import toml
from penstock.settings.goal import Goal
from penstock.settings.notation import parse, quantity
from penstock.settings.policy_spec import read_policy_spec

MAX_CANDIDATES = 10_000


def tune(
    policy: Annotated[str, about("tune.policy")],
    /,
    *,
    grid: GridOptions | None = None,
    validate: Annotated[Listed, about("tune.validate")] = None,
    parameter: Annotated[Listed, about("tune.parameter")] = None,
    candidates: Annotated[int, whole(1, MAX_CANDIDATES), about("tune.candidates")] = 27,
    draw: Annotated[int, whole(), about("tune.draw")] = 1,
    also: Annotated[Listed, about("tune.also")] = None,
    options: RunOptions | None = None,
    execution: ExecutionOptions | None = None,
    out: Annotated[Path, about("tune.out")] = Path(toml.FILE_NAME),
    force: Annotated[bool, about("force")] = False,
    json: Annotated[bool, about("tune.json")] = False,
) -> int:
    """Search a policy's parameters over workloads by successive halving.

    All candidates meet each load once, the better third goes on to more seeds, and so on. The best
    has to beat the policy's defaults on runs that were held back (the last third of the seeds);
    then it is written.
    """
    grid, options = grid or GridOptions(), options or RunOptions()
    check_new(out, force=force, advice="name another file with --out, or add --force")
    settings = options.settings()
    goal, bounds = settings.goal, bounds_of(settings)
    dimensions = tuning.space(policy, ranges(parameter or ()))
    drawn = list(others(policy, listed(also or ())))
    drawn += tuning.candidates(policy, dimensions, candidates, draw)
    parts = tuning.split(
        grid.workloads(),
        listed(validate or ()),
        grid.engines(),
        grid.seed_numbers("1..6"),
        duration_s=options.duration,
        start_executors=options.start,
        faults=options.faults(),
    )
    every = [run for runs in (*parts.training, parts.validation) for run in runs]
    check_runs([Cell(policy, run, goal, bounds) for run in every])
    with (execution or ExecutionOptions()).runner() as runner:
        play = partial(runner.run, "tuning")
        on_round = (lambda _round: None) if json else _print_round
        found = tuning.tune(policy, drawn, parts, goal, bounds, play, on_round)
    if found.better:
        write_whole(out, [settings_text(found, goal, bounds, str(out)).encode()])
    if json:
        answer = {
            "better": found.better,
            "found": tuning.values_of(found.found.policy, goal) if found.better else {},
            "written": str(out) if found.better else None,
            "searched": dimensions,
            "rounds": found.rounds,
            "validated": found.validated,
        }
        print_json(answer)
    else:
        _print_search(found, dimensions, out)
    return 0 if found.better else 1


def others(policy: str, settings: Sequence[str]) -> Sequence[str]:
    """Settings that take part besides those that are drawn: of the same policy, or refused."""
    for setting in settings:
        if (other := parse(setting).name) != (name := parse(policy).name):
            raise ConfigError(f"--also takes other settings of {name}, not of {other}")
        read_policy_spec(setting)
    return settings


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


def _print_round(one: Round) -> None:
    console().print(
        f"{counted(len(one.candidates), 'candidate')} on {counted(one.runs, 'run')} each: "
        f"the best costs {one.candidates[0].cost_ratio:.3f} of the defaults"
    )


def _print_search(found: Tuning, dimensions: Sequence[Dimension], out: Path) -> None:
    screen = console()
    screen.print()
    screen.print(_table(found, dimensions))
    screen.print("cost as a multiple of that of the defaults on the same runs", style="dim")
    if found.better:
        saved = 1.0 - found.found.cost_ratio
        screen.print(f"{out}  (costs {saved:.1%} less than the defaults on the runs held back)")
    else:
        screen.print(f"nothing is better than the defaults of {found.defaults}: no file is written")


def _table(found: Tuning, dimensions: Sequence[Dimension]) -> Table:
    """The finalists below each other: values, cost in training and on what was held back."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    trained = {each.policy: each.cost_ratio for each in found.rounds[-1].candidates}
    held = found.validated
    numbers = count(1)
    for each in held:
        title = "defaults" if each.policy == found.defaults else f"candidate {next(numbers)}"
        table.add_column(title, justify="right", overflow="fold")
    entries = [read_policy_spec(each.policy) for each in held]
    for name in (each.name for each in dimensions):
        parts = [one.policy if hasattr(one.policy, name) else one.limits for one in entries]
        table.add_row(Text(name), *(f"{getattr(part, name):g}" for part in parts))
    table.add_row("cost, tuned on", *(f"{trained.get(each.policy, 1.0):.3f}" for each in held))
    table.add_row("cost, held back", *(f"{each.cost_ratio:.3f}" for each in held), style="bold")
    table.add_row("executor-hours, held back", *(f"{each.executor_hours:.1f}" for each in held))
    table.add_row("late %, held back", *(f"{100 * each.late_fraction:.2f}" for each in held))
    return table


def settings_text(found: Tuning, goal: Goal, bounds: Mapping[str, Any], where: str) -> str:
    """A penstock.toml with every setting explained and the found ones set."""
    policy = found.found.policy
    entry = read_policy_spec(policy, bounds, goal)
    name = parse(policy).name
    asked = msgspec.structs.asdict(goal)
    own = tuning.values_of(policy, goal).items()
    changed = {
        # What a policy takes from [goal] is not written twice.
        "policy": {key: value for key, value in own if asked.get(key) != value},
        "limits": _differing(entry.limits, type(entry.policy).default_limits) | dict(bounds),
        "goal": _differing(goal, Goal()),
    }
    text = (
        f"# Found by `penstock tune {name}`: costs {found.found.cost_ratio:.3f} of what the "
        f"defaults cost\n# on runs that it was not tuned on.\n{document(name, changed)}"
    )
    spec = toml.parse(text, where).spec
    if spec.policy != entry.policy or spec.limits != entry.limits:
        raise AssertionError(f"{where} would not say what was found: {policy}")
    return text


def _differing(value: Limits | Goal, plain: Limits | Goal) -> dict[str, Any]:
    now, before = msgspec.structs.asdict(value), msgspec.structs.asdict(plain)
    return {name: now[name] for name in now if now[name] != before[name]}
