"""`penstock --help` is quick, and says what the parser of the command line would say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock import __version__
from penstock.cli import start
from penstock.cli.overview import LEAST_WIDTH, command_texts, overview


@pytest.mark.parametrize("width", [LEAST_WIDTH, 80, 127])
def test_the_help_is_that_of_the_parser(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    code = "from penstock.cli.app import main; main(['--help'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for arguments in ([], ["--help"], ["-h"]):
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        start.main()
        assert capsys.readouterr().out == ran.stdout


def test_a_narrow_terminal_and_every_command_are_left_to_the_parser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(LEAST_WIDTH - 1))
    for arguments, text in ((["--help"], "simulate"), (["policies", "--json"], '"hpa"')):
        monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as ended:
            start.main()
        assert ended.value.code == 0
        assert text in capsys.readouterr().out


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_what_takes_no_command_loads_no_parser(argument: str) -> None:
    code = (
        f"import sys; sys.argv[1:] = [{argument!r}]; from penstock.cli.start import main; main()\n"
        "print(*sorted(set(sys.modules) & {'cyclopts', 'rich', 'msgspec', 'numpy'}), 'end')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert lines[-1] == "end"
    assert argument == "--help" or lines[0] == __version__


def test_colours_change_no_letter() -> None:
    plain, coloured = (overview(command_texts(), 80, colours=each) for each in (False, True))
    for code in ("\x1b[1m", "\x1b[36m", "\x1b[0m"):
        assert code in coloured
        coloured = coloured.replace(code, "")
    assert coloured == plain
