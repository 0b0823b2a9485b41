"""The command line. Each command lives in its own file and is loaded when it is called."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from cyclopts import App, CycloptsError, Parameter

from penstock import __version__
from penstock.core.errors import PenstockError

HERE = Path(__file__).parents[1]
EXIT_CODES = "Exit codes: 0 done, 1 ran but the answer is no, 2 bad input."

app = App(
    name="penstock",
    help="Keeps a Spark Structured Streaming job at the right size, and compares the scalers that "
    "could.",
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
    help_epilogue=EXIT_CODES,
)

#: Each command with its line of help and examples of its use; the rest is loaded when called.
COMMANDS = {
    "demo": (
        "Watch the fleet of a real Spark job follow its load, on this machine.",
        "",
        "--fast",
        "--policy ds2 --query q3 --minutes 10",
        "--journal demo.jsonl --out demo.html",
    ),
    "simulate": (
        "Run one policy on one workload and watch it decide.",
        "--policy hpa --workload sine:mean=40k,amplitude=25k,period=3h",
        "--policy ds2:overprovisioning=0.33 --engine continuous --journal run.jsonl",
        "--workload trace:load.csv,hours=24 --fault executor_lost:at=2h",
        "--workload 'constant:20k for 1h then spikes' --duration 4h --json",
    ),
    "compare": (
        "Rank policies over workloads, engines and seeds by what they cost.",
        "--policy hpa ds2 static:12 --workload sine --seeds 1..5",
        "--policy hpa,ds2 --workload trace:a.csv --workload trace:b.csv --json",
        "--engine micro-batch continuous --max 16 --slo 10s",
        "--policy ds2 --vary overprovisioning=0.2,0.4 window=30s,2min --html ds2.html",
        "--seeds 1..50 --resume done.jsonl --out results.parquet",
        "--seeds 1..50 --on spark --master spark://host:7077 --out results.csv",
        "--live --policy static spark penstock --seeds 1..3",
    ),
    "tune": (
        "Search a policy's parameters over workloads; exit 1 if its defaults stay the best.",
        "ds2 --workload diurnal sine --seeds 1..6",
        "hpa --workload trace:load.csv --parameter cpu_target stabilize_down=1min..15min",
        "queueing --validate spikes --on spark --master spark://host:7077 --resume done.jsonl",
    ),
    "policies": ("List the policies, or explain one.", "", "hpa", "--json"),
    "explain": (
        "Tell each decision of a journal in words; exit 1 if none matches.",
        "run.jsonl --kind rescale",
        "run.jsonl --since 2h --until 150min --code cooldown",
        "live.jsonl --since 2026-11-15T03:00 --kind hold",
    ),
    "replay": (
        "Show what another policy would have decided on a journal; exit 1 if it differs.",
        "run.jsonl --policy ds2",
        "run.jsonl",
    ),
    "run": (
        "Run an unmodified PySpark script and scale its queries.",
        "job.py",
        "--policy ds2 --journal live.jsonl job.py --input events",
        "--config penstock.toml --recommend job.py",
    ),
    "doctor": (
        "Check a script, or a cluster, before it is scaled; exit 1 on an error.",
        "job.py",
        "--master spark://host:7077 --max 8",
        "job.py --json",
    ),
    "report": (
        "Make one page to look at of one journal or several.",
        "run.jsonl",
        "hpa.jsonl ds2.jsonl --out compare.html --slo 5s",
    ),
    "reproduce": (
        "Run a published study again, beside its own tables; exit 1 if a claim does not hold.",
        "koper2022",
        "all --html pages --json",
    ),
    "calibrate": (
        "Fit a simulated engine to a journal, and say how well it predicts the rest.",
        "run.jsonl",
        "live.jsonl --part 0.7 --json",
    ),
    "init": ("Write a commented penstock.toml.", "", "jobs/penstock.toml --policy hpa"),
}

for _name, (_help, *_examples) in COMMANDS.items():
    _calls = "\n".join(f"  penstock {_name} {_example}".rstrip() for _example in _examples)
    app.command(
        f"penstock.cli.commands.{_name}:{_name}",
        name=_name,
        help=_help,
        help_epilogue=f"Examples:\n{_calls}\n\n{EXIT_CODES}",
    )


def main(arguments: list[str] | None = None) -> None:
    """Run a command; the process ends with its exit code."""
    warnings.showwarning = _warn  # type: ignore[assignment]
    try:
        arguments = _apart(sys.argv[1:] if arguments is None else arguments)
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _fail(" ".join(str(error).split()))
    except PenstockError as error:
        _fail(str(error))
    except BrokenPipeError:
        # Whoever read our output has enough of it (`| head`): nothing is wrong.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _apart(arguments: list[str]) -> list[str]:
    """Keep the arguments of a script from being taken for ours: they follow its name.

    >>> _apart(["run", "--policy", "ds2", "job.py", "--policy", "mine"])
    ['run', '--policy', 'ds2', '--', 'job.py', '--policy', 'mine']
    """
    if arguments[:1] != ["run"] or "--" in arguments:
        return arguments
    scripts = [place for place, text in enumerate(arguments) if text.endswith(".py")]
    return [*arguments[: scripts[0]], "--", *arguments[scripts[0] :]] if scripts else arguments


def _fail(sentence: str, code: int = 2) -> None:
    print(f"penstock: {sentence}", file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: object
) -> None:
    """Print a warning of ours in one line, and one of another library as Python does."""
    if category.__module__.startswith("penstock.") or HERE in Path(filename).parents:
        text = f"penstock: warning: {message}\n"
    else:
        text = warnings.formatwarning(message, category, filename, lineno)
    sys.stderr.write(text)


if __name__ == "__main__":
    main()
