"""The hook at the start of Python: one finder in drivers, nothing in workers, never in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pyspark = pytest.importorskip("pyspark")

SOURCE = Path(__file__).parent.parent.parent / "src"
FACTS = """
import json, sys
sys.path.insert(0, {source!r})
import penstock_hook
facts = {{"finders": [type(each).__name__ for each in sys.meta_path]}}
facts["loaded"] = [name for name in sys.modules if name.startswith("penstock")]
if {imports}:
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter
    facts["wrapped"] = [hasattr(getattr(DataStreamWriter, name), "__wrapped__")
                        for name in ("start", "toTable", "trigger")]
    facts["file"] = sys.modules["pyspark.sql.streaming.readwriter"].__file__
print(json.dumps(facts))
"""


def facts(
    *, imports: bool = False, path: str = "", environment: dict[str, str] | None = None
) -> dict[str, object]:
    """What a new Python knows after it has imported the hook, and PySpark if asked for."""
    code = FACTS.format(source=str(SOURCE), imports=imports)
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, "PYTHONPATH": path, **(environment or {})},
    )
    assert done.stderr == ""
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_it_waits_for_the_writer_of_streams_and_loads_nothing_else() -> None:
    found = facts(imports=True)
    assert found["wrapped"] == [True, True, False]
    assert found["loaded"] == ["penstock_hook"]


def test_pyspark_in_an_archive_is_found_too() -> None:
    archives = Path(pyspark.__file__).parent / "python" / "lib"
    if not (archives / "pyspark.zip").exists():
        pytest.skip("this PySpark has no archive")
    found = facts(imports=True, path=os.pathsep.join(str(each) for each in archives.glob("*.zip")))
    assert "pyspark.zip" in str(found["file"])
    assert found["wrapped"] == [True, True, False]


@pytest.mark.parametrize(
    "environment",
    [
        {"PENSTOCK_HOOK": "off"},
        {"PYTHON_WORKER_FACTORY_PORT": "1"},
        {"PYTHON_WORKER_FACTORY_SOCK_DIR": "/"},
    ],
)
def test_it_does_nothing_in_workers_and_where_it_is_switched_off(
    environment: dict[str, str],
) -> None:
    found = facts(environment=environment)
    assert "WriterFinder" not in str(found["finders"])
    assert "WriterFinder" in str(facts()["finders"])


class Broken:
    """A writer whose session cannot be asked."""

    @property
    def _df(self) -> object:
        raise RuntimeError("the session is gone")


def test_a_failure_is_a_warning_and_the_query_starts(caplog: pytest.LogCaptureFixture) -> None:
    code = compile((SOURCE / "penstock_hook.py").read_text(), "penstock_hook.py", "exec")
    names: dict[str, object] = {"__name__": "penstock_hook"}
    finders = list(sys.meta_path)
    try:
        exec(code, names)
    finally:
        sys.meta_path[:] = finders
    attaching = names["_attaching"]
    assert callable(attaching)
    assert attaching(lambda _writer, path: f"query at {path}")(Broken(), "here") == "query at here"
    assert caplog.messages == ["Penstock does not scale this job: the session is gone"]
