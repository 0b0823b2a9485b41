"""What policies would have used and how late they would have been, against what was paid.

A micro-batch job is fitted to the first half of the past and has to predict the rest. Policies then
run a job that is fitted to all of it, under the load that arrived, from the fleet that there was.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from statistics import mean, median
from typing import Any

import msgspec
from msgspec import Struct, structs

from penstock.core.alarm import alarms_s
from penstock.core.errors import ConfigError
from penstock.core.journal import JournalHeader, MemoryJournal
from penstock.core.model import Limits, Step
from penstock.lab.advise.events import Found, LogPart
from penstock.lab.advise.history import CannotSayError, History, history
from penstock.lab.advise.logs import LogFile
from penstock.lab.experiments.profiling import profiled
from penstock.lab.experiments.scenario import steer
from penstock.lab.experiments.score import Delays, executor_seconds
from penstock.settings.goal import Goal
from penstock.settings.header import journal_header
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.spark_conf import executor_size
from penstock.simulation.calibration import fit_batches
from penstock.simulation.calibration.calibrate import calibrated
from penstock.simulation.engines.engine import Outcome
from penstock.simulation.engines.microbatch import MicroBatchJob
from penstock.spark.doctor import Application, examine

#: A calibration that is further off predicts nothing.
MOST_ERROR = 0.2
MONTH_HOURS = 730.0
#: In a past that is shorter, chance decides much: means of three runs are promised.
SHORT_S, SHORT_RUNS = 3600.0, 3


class Question(Struct, frozen=True):
    """What is asked of each application. Without `most`, its largest fleet is the bound."""

    policies: tuple[str, ...]
    goal: Goal = Goal()
    least: int = 1
    most: int | None = None
    last_s: float = 86_400.0
    in_money: bool = False
    keeps_journals: bool = False


class Advice(Struct, frozen=True, kw_only=True):
    """A row of the result: one application under one policy; ``None`` is what cannot be said.

    Numbers of executors are means over the time that was judged; `saved_hours` and `saved_money`
    are those of a month.
    """

    application: str
    name: str = ""
    log: str
    policy: str = ""
    judged_hours: float | None = None
    paid_executors: float | None = None
    late_fraction: float | None = None
    needed_executors: float | None = None
    needed_late_fraction: float | None = None
    saved_hours: float | None = None
    saved_money: float | None = None
    error: float | None = None
    cannot_say: str = ""
    problem: str = ""
    findings: str = ""


class Answer(Struct, frozen=True):
    """The rows of one application, and its journals: compressed, by policy, "" as recorded."""

    rows: list[Advice]
    journals: dict[str, bytes] = {}


def advise_on(question: Question, log: str, found: Iterable[Found]) -> Answer:
    """The answer for one application: from the files of its log, and what each of them says."""
    found = list(found)
    files = [one for one in found if isinstance(one, LogFile)]
    parts = [one for one in found if isinstance(one, LogPart)]
    problems = [f"{part.file.path} {part.problem}" for part in parts if part.problem]
    unread = {one.path for one in files} - {part.file.path for part in parts}
    problems += [f"{path} cannot be read" for path in unread]
    numbers = [one.number for one in files]
    gaps = set(range(min(numbers), max(numbers))) - set(numbers)
    problems += [f"{log} lacks events_{number}" for number in gaps]
    known = Advice(application=log.rpartition("/")[2], log=log, problem="; ".join(sorted(problems)))
    if named := next((part for part in parts if part.application), None):
        known = structs.replace(known, application=named.application, name=named.name)
    try:
        past = history(parts)
    except CannotSayError as error:
        says = not problems or any(part.application or part.reports for part in parts)
        reason = str(error) if says else "nothing of its log can be read"
        return Answer([structs.replace(known, cannot_say=reason)])
    paid = past.outcome()
    most = question.most or max(1, *(level.executors for level in paid.paid))
    bounds = {"min_executors": min(question.least, most), "max_executors": most}
    findings = [one for one in examine(Application(past.conf, **bounds)) if one.level != "ok"]  # type: ignore[arg-type]
    known = structs.replace(
        known,
        judged_hours=paid.duration_s / 3600.0,
        paid_executors=_mean_size(paid),
        late_fraction=_late(paid, question.goal),
        findings="\n".join(f"{one.check}: {one.reason}: {one.change}" for one in findings),
    )
    return _answer(question, past, known, bounds)


def _answer(question: Question, past: History, known: Advice, bounds: Mapping[str, Any]) -> Answer:
    steps = list(past.steps())
    if (goal := question.goal).by_size:
        size = executor_size(past.conf) | {"executor_cores": float(past.executor_cores)}
        question = structs.replace(question, goal=(goal := structs.replace(goal, **size)))
    facts = {"job": known.application, "name": known.name, "log": known.log, "engine": "spark"}
    header = JournalHeader.of(facts, limits=Limits(**bounds), goal=structs.asdict(goal))
    journals, rows = {"": _packed(header, steps)} if question.keeps_journals else {}, []
    try:
        errors = calibrated(steps).errors
        known = structs.replace(known, error=max(errors.throughput or 0.0, errors.delay or 0.0))
        if (known.error or 0.0) > MOST_ERROR:
            error, most = 100 * (known.error or 0.0), 100 * MOST_ERROR
            off = f"{error:.0f} % off what it had not seen, over {most:.0f} %"
            raise CannotSayError(f"the simulated job is {off}")
        job = with_task_overhead(fit_batches.fit(steps), steps)
        if len(past.outcome().paid) == 1:  # what joining costs was never seen
            job = structs.replace(job, join_s=past.join_s)
        job = structs.replace(job, startup=past.startup or job.startup)
    except (CannotSayError, ConfigError) as reason:
        return Answer([structs.replace(known, cannot_say=str(reason))], journals)
    seeds = range(1, 1 + (SHORT_RUNS if past.end_s - past.begin_s < SHORT_S else 1))
    for text in question.policies:
        known = structs.replace(known, policy=text)
        try:
            would = [_played(question, past, job, text, bounds, seed) for seed in seeds]
        except ConfigError as reason:  # a text that suits other fleets
            rows.append(structs.replace(known, cannot_say=str(reason)))
            continue
        needed = mean(_mean_size(one) for one, _ in would)
        saved_hours = MONTH_HOURS * ((known.paid_executors or 0.0) - needed)
        row = structs.replace(
            known,
            needed_executors=needed,
            needed_late_fraction=mean(_late(one, question.goal) for one, _ in would),
            saved_hours=saved_hours,
            saved_money=saved_hours * goal.executor_price if question.in_money else None,
        )
        rows.append(row)
        if question.keeps_journals:
            journals[text] = would[0][1]
    return Answer(rows, journals)


def with_task_overhead(job: MicroBatchJob, steps: Sequence[Step]) -> MicroBatchJob:
    """The same job, with what tasks take besides records paid in each wave of them.

    A fit cannot know this from a fleet that never changes: it is part of what each batch costs,
    and a smaller fleet would seem to get it for nothing. What tasks took is in the log.
    """
    looks = [step.snapshot for step in steps if step.snapshot]
    seen = [(batch, one.fleet.active) for one in looks for batch in one.batches if batch.stages]
    if not seen:
        return job
    stage, cores = job.stages[0], job.cores_per_executor
    work_s = sum(one.work_s for batch, _ in seen for one in batch.stages)
    records = sum(batch.input_records for batch, _ in seen)
    beside_s = max(0.0, work_s - stage.core_s_per_record * records) / len(seen)
    waves = ceil(stage.tasks / (cores * max(1, round(median(size for _, size in seen)))))
    overhead_s = min(beside_s / stage.tasks, job.launch_s / waves)
    stages = (structs.replace(stage, task_overhead_s=overhead_s),)
    return structs.replace(job, launch_s=job.launch_s - waves * overhead_s, stages=stages)


def _played(
    question: Question,
    past: History,
    job: MicroBatchJob,
    text: str,
    bounds: Mapping[str, Any],
    seed: int,
) -> tuple[Outcome, bytes]:
    """What would have come of a policy, and its journal."""
    spec = read_policy_spec(text, bounds, question.goal)
    policy, rates_rps = profiled(spec.policy, job, bounds["max_executors"]), past.rates_rps()
    start = min(max(past.outcome().paid[0].executors, 1), bounds["max_executors"])
    engine, journal = job.start(rates_rps, executors=start, seed=seed), MemoryJournal()
    surges_s = list(alarms_s(rates_rps)) if policy.wakes_on_surge else None
    end_s = float(len(rates_rps))
    would = steer(engine, policy, spec.limits, end_s, journal=journal, surges_s=surges_s)
    header = journal_header(spec, question.goal, engine=job.engine_name, job=past.application)
    return would, _packed(header, journal.steps) if question.keeps_journals else b""


def _mean_size(outcome: Outcome) -> float:
    return executor_seconds(outcome.paid, 0.0, outcome.duration_s) / outcome.duration_s


def _late(outcome: Outcome, goal: Goal) -> float:
    return Delays.of(outcome).fraction_above(goal.slo_s)


def _packed(header: JournalHeader, steps: Iterable[Step]) -> bytes:
    return zlib.compress(b"\n".join(map(msgspec.json.encode, [header, *steps])) + b"\n", 1)
