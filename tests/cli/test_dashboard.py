"""``penstock dashboard`` as a user meets it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from penstock.cli.app import main
from penstock.observe.dashboard.server import TOKEN_VARIABLE
from penstock.testbed import wait_until
from tests.observe.dashboard.played import Player
from tests.prometheus import free_port


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "dashboard needs at least one journal, or a folder of them"),
        (["nowhere.jsonl"], "cannot read journal nowhere.jsonl: No such file or directory"),
        ([__file__], "is not a Penstock journal: its first line is no header"),
        ([".", "--at", "4041"], "dashboard must be HOST:PORT such as 127.0.0.1:9404, not '4041'"),
        ([".", "--at", "0.0.0.0:4041"], "needs a token of at least 16 characters"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    where = [] if "--at" in arguments else ["--at", f"127.0.0.1:{free_port()}"]
    with pytest.raises(SystemExit) as end:
        main(["dashboard", *arguments, *where])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_a_growing_journal_is_served_until_the_command_is_interrupted(tmp_path: Path) -> None:
    port = free_port()
    command = [str(Path(sys.executable).with_name("penstock")), "dashboard", str(tmp_path)]

    def last_turn() -> Any:
        try:
            with urlopen(f"http://127.0.0.1:{port}/data", timeout=30.0) as answer:
                job = json.load(answer)["job"]
        except OSError:
            return None
        return job and job["begin_s"] + job["now_s"]

    with (
        closing(Player(tmp_path / "orders.jsonl")) as player,
        subprocess.Popen([*command, "--at", f"127.0.0.1:{port}"], stderr=subprocess.PIPE) as served,
    ):
        try:
            for upto in (10, 20):
                player.play(upto)
                at_s = player.steps[upto - 1].at_s
                wait_until(lambda: abs((last_turn() or 0.0) - at_s) < 0.1, 60.0, "no turn")  # noqa: B023
        finally:
            served.send_signal(signal.SIGINT)
        _, said = served.communicate(timeout=60.0)
    assert served.returncode == 130
    assert f"the dashboard is at http://127.0.0.1:{port}/" in said.decode()
