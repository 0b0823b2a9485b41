"""The command line. Each command lives in its own file and is loaded when it is called."""

import sys
import warnings
from pathlib import Path

from cyclopts import App, CycloptsError, Parameter

from penstock import __version__
from penstock.cli.overview import ABOUT, EXIT_CODES, command_texts
from penstock.core.errors import PenstockError

HERE = Path(__file__).parents[1]

app = App(
    name="penstock",
    help=ABOUT,
    version=__version__,
    help_format="plaintext",
    # Flags are off without saying so.
    default_parameter=Parameter(
        negative=(), show_default=lambda value: None if value is False else value
    ),
    help_epilogue=EXIT_CODES,
    suppress_keyboard_interrupt=False,
)

for _name, _text in command_texts().items():
    _calls = "\n".join(f"  penstock {_name} {each}".rstrip() for each in _text["examples"])
    _function = _name.replace("-", "_")
    app.command(
        f"penstock.cli.commands.{_function}:{_function}",
        name=_name,
        help=_text["help"],
        help_epilogue=f"Examples:\n{_calls}\n\n{EXIT_CODES}",
    )


def main(arguments: list[str] | None = None) -> None:
    """Run a command; the process ends with its exit code."""
    warnings.showwarning = _warn  # type: ignore[assignment]
    try:
        arguments = _separated(sys.argv[1:] if arguments is None else arguments)
        code = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _fail(" ".join(str(error).split()))
    except PenstockError as error:
        _fail(str(error))
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`): nothing is wrong.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _separated(arguments: list[str]) -> list[str]:
    """Keep the arguments of a script, which follow its name, from being read as ours.

    >>> _separated(["run", "--policy", "ds2", "job.py", "--policy", "mine"])
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
