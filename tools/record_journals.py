"""Record journals of real runs for `tests/recorded`, small enough to be kept in the repository.

``python -m tools.record_journals record`` runs the jobs of `RUNS` one after the other with
``penstock demo``, six minutes each, and thins what they write; with names, only these. Nothing else
should run on the machine. ``python -m tools.record_journals thin IN OUT`` thins a journal that
exists.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import structs

from penstock.core.errors import ConfigError, unknown
from penstock.core.journal import read_header, read_last_run, write_all
from penstock.core.model import Batch, Decision, Reason, Step
from penstock.settings.goal import Goal
from penstock.settings.header import recorded_goal, recorded_limits, recorded_spec
from penstock.settings.notation import quantity

RECORDED = Path(__file__).parent.parent / "tests" / "recorded"
#: The time between steps that are kept.
EVERY_S = 5.0

#: Name of a journal: job and policy. The load of a demo rises and falls. One executor is saturated
#: by it; six are idle before and after it.
RUNS: dict[str, tuple[str, str]] = {
    "q1-follows": ("q1", "penstock"),
    "q1-saturated": ("q1", "static:1"),
    "q3-follows": ("q3", "penstock"),
    "q3-idle": ("q3", "static:6"),
    "q11-saturated": ("q11", "static:1"),
    "images-follows": ("images-recognise", "penstock"),
    "images-saturated": ("images-recognise", "static:1"),
}


def thinned(steps: Iterable[Step], every_s: float) -> Iterator[Step]:
    """Steps that are at least `every_s` apart, without evidence and memory.

    A batch of a step that is left out moves to the next one that stays: each is in exactly one
    snapshot. A step with a receipt stays, since a replay answers with it.

    >>> from penstock.core.model import Fleet, Snapshot
    >>> hold = Decision.of(1, Reason("test", "holding", {"lag_s": 2.0}))
    >>> seen = [Snapshot(float(at), Fleet(1, 1, 1), batches=(Batch(at, at, 1.0, 50),))
    ...         for at in range(5)]
    >>> few = list(thinned([Step(one.at_s, one, hold) for one in seen], 2.0))
    >>> [(step.at_s, [batch.id for batch in step.snapshot.batches]) for step in few]
    [(0.0, [0]), (2.0, [1, 2]), (4.0, [3, 4])]
    >>> few[0].decision.reasons
    (Reason(code='test', text='holding', evidence={}),)
    """
    waiting: tuple[Batch, ...] = ()
    last_s = float("-inf")
    for step in steps:
        snapshot = step.snapshot
        waiting += () if snapshot is None else snapshot.batches
        # A clock wakes up some milliseconds early or late.
        if step.at_s - last_s < every_s - 0.05 and step.receipt is None:
            continue
        last_s = step.at_s
        if snapshot is not None:
            snapshot = structs.replace(snapshot, batches=waiting)
            waiting = ()
        yield structs.replace(step, snapshot=snapshot, decision=_shortened(step.decision))


def _shortened(decision: Decision) -> Decision:
    reasons = tuple(Reason(reason.code, reason.text) for reason in decision.reasons)
    return structs.replace(decision, reasons=reasons, memory=None)


def thin(
    source: Path,
    kept: Path,
    *,
    every_s: float = EVERY_S,
    from_s: float = 0.0,
    to_s: float = float("inf"),
    most: int | None = None,
    slo_s: float | None = None,
    version: str = "",
) -> None:
    """Write a small copy of a journal.

    `most` executors, the SLO and the version are for journals whose header does not say: a replay
    needs to know what the limits and the goal were.
    """
    header = read_header(source)
    limits = recorded_limits(header) or recorded_spec(header).limits
    if most is not None:
        limits = structs.replace(limits, max_executors=most)
    goal = recorded_goal(header) or Goal()
    if slo_s is not None:
        goal = structs.replace(goal, slo_s=slo_s)
    header = structs.replace(
        header,
        penstock=version or header.penstock,
        limits=structs.asdict(limits),
        goal=structs.asdict(goal),
    )
    _, steps = read_last_run(source)
    begin_s = steps[0].at_s if steps else 0.0
    part = [step for step in steps if from_s <= step.at_s - begin_s <= to_s]
    if not part:
        raise ConfigError(f"journal {source} holds no step in that time")
    write_all(kept, thinned(part, every_s), header)


def record(name: str) -> None:
    """Run a job under the load of the demo and keep its journal."""
    job, policy = RUNS[name]
    with tempfile.TemporaryDirectory(prefix="penstock-recorded-") as directory:
        whole = Path(directory, "run.jsonl")
        argv = [sys.executable, "-m", "penstock", "demo", "--job", job, "--policy", policy]
        subprocess.run([*argv, "--journal", str(whole)], check=True)
        thin(whole, RECORDED / f"{name}.jsonl")


def main(arguments: Sequence[str]) -> int:
    reader = argparse.ArgumentParser(prog="record_journals", description=__doc__)
    parts = reader.add_subparsers(dest="part", required=True)
    parts.add_parser("record").add_argument("names", nargs="*", metavar="NAME")
    thinning = parts.add_parser("thin")
    thinning.add_argument("source", type=Path, metavar="IN")
    thinning.add_argument("kept", type=Path, metavar="OUT")
    for option in ("--every", "--from", "--to", "--slo"):
        thinning.add_argument(option, dest=f"{option[2:]}_s", type=quantity)
    thinning.add_argument("--max", dest="most", type=int)
    thinning.add_argument("--version")
    given = {key: value for key, value in vars(reader.parse_args(arguments)).items() if value}
    try:
        if given.pop("part") == "thin":
            thin(**given)
            return 0
        names = given.get("names") or list(RUNS)
        for name in names:
            if name not in RUNS:
                raise unknown("recording", name, RUNS)
        for name in names:
            record(name)
    except ConfigError as error:
        print(f"record_journals: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
