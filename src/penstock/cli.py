"""The command line. Each command lives in its own file and is loaded when it is called."""

from __future__ import annotations

import sys
import warnings

from cyclopts import App, CycloptsError, Parameter

from penstock import __version__
from penstock.errors import PenstockError

app = App(
    name="penstock",
    help="Keeps a Spark Structured Streaming job at the right size, and compares the scalers that "
    "could.",
    version=__version__,
    help_format="markdown",
    default_parameter=Parameter(negative=()),
    help_epilogue="Exit codes: 0 done, 1 ran but the answer is no, 2 bad input.",
)

COMMANDS = {
    "simulate": "Run one policy on one workload and watch it decide.",
    "compare": "Rank policies over workloads, engines and seeds.",
    "policies": "List the policies, or explain one.",
    "explain": "Tell each decision of a journal in words.",
    "replay": "Show what another policy would have decided on a journal.",
    "init": "Write a commented penstock.toml.",
}

for _name, _help in COMMANDS.items():
    app.command(f"penstock.commands.{_name}:{_name}", name=_name, help=_help)


def main(arguments: list[str] | None = None) -> None:
    """Run a command; the process ends with its exit code."""
    warnings.showwarning = _warn
    try:
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


def _fail(sentence: str, code: int = 2) -> None:
    print(f"penstock: {sentence}", file=sys.stderr)  # noqa: T201
    sys.exit(code)


def _warn(message: Warning | str, *_: object) -> None:
    print(f"penstock: warning: {message}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    main()
