"""``penstock jobs``: the benchmark jobs that the demo can run."""

from typing import Annotated, Any

from rich.table import Column, Table

from penstock.cli.options import about
from penstock.cli.output import console, facts_table, print_json
from penstock.observe.formatting import rate
from penstock.testbed.demo.plan import DemoPlan
from penstock.testbed.jobs.benchmark_jobs import JOBS, NOT_EXPRESSIBLE, BenchmarkJob, find_job

#: What `--json` says of a job under the names of its fields.
FACTS = ("summary", "origin", "dataflow", "streams", "state", "output_mode", "settings", "packages")


def jobs(
    name: Annotated[str | None, about("jobs.name")] = None,
    /,
    *,
    json: Annotated[bool, about("jobs.json")] = False,
) -> int:
    """List the benchmark jobs, or explain one."""
    if name is not None:
        job = find_job(name)
        if json:
            print_json(_facts(job))
        else:
            console().print(job.name, style="bold")
            console().print(facts_table(_shown(job)))
    elif json:
        print_json([_facts(each) for each in JOBS.values()])
    else:
        _print_table()
    return 0


def _print_table() -> None:
    short = (Column(title, no_wrap=True) for title in ("job", "streams", "records"))
    table = Table(*short, "state", "needs", "summary", box=None, pad_edge=False)
    for job in JOBS.values():
        facts = _facts(job)
        needs = "penstock[jobs]" if job.packages else ""
        streams = "\n".join(job.streams)
        table.add_row(job.name, streams, facts["records"], job.state, needs, job.summary)
    screen = console()
    screen.print(table)
    screen.print("\nNot expressible in Structured Streaming:")
    for query, reason in NOT_EXPRESSIBLE.items():
        screen.print(f"{query}: {reason}")


def _shown(job: BenchmarkJob) -> dict[str, str]:
    settings = "\n".join(f"{key}={value}" for key, value in job.settings.items())
    cost = f"compute about {1e3 * job.compute_s:g} ms" if job.compute_s else "compute little"
    demo = DemoPlan(job.name)
    return {
        "summary": job.summary,
        "origin": job.origin,
        "dataflow": job.dataflow,
        "streams": ", ".join(job.streams),
        "state": job.state,
        "output mode": job.output_mode,
        "settings": settings or "none of its own",
        "needs": "penstock[jobs]" if job.packages else "nothing beyond penstock[spark]",
        "records": cost,
        "in the demo": f"{rate(demo.low_rps)} to {rate(demo.peak_rps)}, each record waits "
        f"{1e3 * job.demo.pace_s:g} ms",
    }


def _facts(job: BenchmarkJob) -> dict[str, Any]:
    return {
        "job": job.name,
        **{name: getattr(job, name) for name in FACTS},
        "records": "computing" if job.compute_s else "paced",
        "compute_s": job.compute_s,
        "demo": job.demo,
    }
