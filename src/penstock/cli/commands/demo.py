"""``penstock demo``: a real job, a load that rises and falls, and a fleet that follows."""

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from rich.console import Console

from penstock.cli.options import CpuShare, DashboardAt, PolicyText, about, amount, whole
from penstock.cli.output import check_new, console, facts_table, interrupt_on_sigterm, print_json
from penstock.cli.views.demo_view import PlainView, live_view
from penstock.core.clock import WallClock
from penstock.core.errors import ConfigError
from penstock.core.files import check_place, file_errors, write_whole
from penstock.core.model import Step
from penstock.core.phrases import executors
from penstock.observe.dashboard.server import DashboardServer, JobBoard
from penstock.observe.formatting import rate, seconds
from penstock.observe.report.page import page, summary
from penstock.policies import DEFAULT_POLICY
from penstock.settings.policy_spec import PolicySpec
from penstock.testbed.clusters import ClusterKind
from penstock.testbed.demo.attached import AttachedDemo, attached_demo, elapsed
from penstock.testbed.demo.plan import SLO_S, DemoPlan, make_plan, with_scaled_time
from penstock.testbed.jobs.playback import Report

LOOK_EVERY_S = 0.5


def demo(
    *,
    policy: PolicyText = None,
    job: Annotated[str, about("demo.job")] = "q11",
    minutes: Annotated[float | None, amount(unit="N"), about("demo.minutes")] = None,
    fast: Annotated[bool, about("demo.fast")] = False,
    cpu_share: CpuShare = None,
    cluster: Annotated[ClusterKind, about("demo.cluster")] = "standalone",
    journal: Annotated[Path | None, about("demo.journal")] = None,
    out: Annotated[Path | None, about("demo.out")] = None,
    kafka_port: Annotated[int | None, whole(1, 65535), about("demo.kafka_port")] = None,
    dashboard: DashboardAt = None,
    json: Annotated[bool, about("demo.json")] = False,
) -> int:
    """Watch the fleet of a real job follow its load: a broker, a Spark cluster, a Nexmark query."""
    plan = make_plan(job, minutes, fast, cpu_share, cluster)
    entry = with_scaled_time(policy or DEFAULT_POLICY, plan)
    if dashboard is not None:
        DashboardServer(dashboard, JobBoard()).close()  # refused now, not when the cluster is up
    journal, out = _places(journal, out)
    interrupt_on_sigterm()
    screen = console(stderr=json)
    since_s = elapsed()

    def say(line: str) -> None:
        screen.print(f"{since_s():6.1f} s  {line}")

    screen.print(*_introduction(plan, entry), sep="\n")
    steps: list[Step] = []
    sent: Report | None = None
    try:
        if dashboard is not None:
            say(f"the live page will be at http://{dashboard}/")
        starting = attached_demo(
            plan, entry, journal, say, kafka_port=kafka_port, dashboard=dashboard or ""
        )
        with starting as live:
            steps = live.steps
            _watch(live, screen, entry.label)
            sent = live.environment.producer.report()
            say("the load is over; ending everything ...")
    except KeyboardInterrupt:
        say("interrupted; everything has ended")
        raise
    finally:
        if any(step.snapshot is not None for step in steps):
            _write_page(plan, entry, steps, out)
            _print_figures(screen, entry, steps, sent, {"journal": journal, "page": out}, json=json)
    say("done")
    return 0


def _places(journal: Path | None, out: Path | None) -> tuple[Path, Path]:
    """Where the journal and the page go; refused now rather than at the end."""
    if journal is None:
        stamp = datetime.fromtimestamp(WallClock().now(), UTC).strftime("%Y%m%d-%H%M%S")
        runs = Path("runs")
        with file_errors(f"cannot make {runs}, name a file with --journal"):
            runs.mkdir(exist_ok=True)
        journal = runs / f"demo-{stamp}.jsonl"
    out = out or journal.with_suffix(".html")
    check_new(journal)
    check_place(out)
    if out.resolve() == journal.resolve():
        raise ConfigError(f"--out {out} is the journal: name another file")
    return journal, out


def _stand_in(plan: DemoPlan) -> str:
    return f"{plan.work[0].upper()}{plan.work[1:]}, so that one machine can stand for a cluster."


def _introduction(plan: DemoPlan, entry: PolicySpec) -> list[str]:
    """What the demo will show, and what of it is artificial."""
    least, most = entry.limits.min_executors, entry.limits.max_executors
    lines = [
        f"{entry.label} keeps {plan.job} within {SLO_S:g} s with {least} to {most} executors, "
        f"while the load goes from {rate(plan.low_rps)} to {rate(plan.peak_rps)} and back "
        f"in {seconds(float(plan.load_s))}.",
        f"{_stand_in(plan)} Broker, cluster and query are real.",
    ]
    if plan.heavy:
        lines.append(
            f"A batch takes seconds besides its records: there is one every {plan.trigger_s:g} s, "
            "and the load is lower than for other jobs."
        )
    if plan.speed > 1.0:
        lines.append(
            f"Minutes stand for hours: the time spans of the policy and of its guards are divided "
            f"by {plan.speed:.0f}."
        )
    if (step := entry.limits.max_step) is not None:
        lines.append(
            f"It decides every {plan.every_s:g} s and moves at most {step} executors at a time, "
            "since they all start on this machine."
        )
    return lines


def _watch(live: AttachedDemo, screen: Console, label: str) -> None:
    """Show the run until its load is over."""
    on_terminal = screen.is_terminal and not screen.stderr
    plain = PlainView(live, screen)
    with live_view(live, screen, label) if on_terminal else nullcontext(plain.update) as update:
        for now_s in WallClock().ticks(LOOK_EVERY_S):
            update(now_s)
            if live.environment.is_over():
                return


def _write_page(plan: DemoPlan, entry: PolicySpec, steps: list[Step], out: Path) -> None:
    note = (
        f"{_stand_in(plan)} Minutes stand for hours: time spans of the policy divided by "
        f"{plan.speed:.0f}."
    )
    title = f"Demo: {plan.job} under {entry.label}"
    html = page([(entry.label, steps)], title=title, slo_s=SLO_S, note=note)
    write_whole(out, [html.encode()])


def _print_figures(
    screen: Console,
    entry: PolicySpec,
    steps: list[Step],
    sent: Report | None,
    files: Mapping[str, Path],
    *,
    json: bool,
) -> None:
    """The run in figures, all from its journal."""
    found = summary([(entry.label, steps)], SLO_S)[0]
    if json:
        print_json({**{name: str(path) for name, path in files.items()}, "figures": found})
        return
    figures, cost = found.account, found.cost
    late = figures.late_fraction
    facts = {
        "policy": f"{entry.label}, {figures.turns} decisions in {seconds(figures.span_s)}",
        "events": "not all were sent" if sent is None else sent.sentence(),
        "executor-seconds": f"{cost.executor_s:.0f}  (mean {figures.mean_executors:.1f}; a fleet "
        f"of {cost.peak_executors} all the time: {cost.peak_fleet_s:.0f}, "
        f"so {figures.saved_fraction:.0%} saved)",
        "delay p50 / p95": f"{seconds(figures.p50_s)} / {seconds(figures.p95_s)}",
        f"late (> {SLO_S:g} s)": "not measured" if late is None else f"{late:.2%} of records",
        "rescales": f"{figures.rescales}  ({executors(figures.moved_executors)} moved)",
        **{name: str(path) for name, path in files.items()},
    }
    screen.print(facts_table(facts))
