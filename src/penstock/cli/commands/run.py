"""``penstock run``: an unmodified PySpark script, scaled."""

import os
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from penstock.cli.options import DashboardAt, Master, PolicyText, ScaleOptions, about
from penstock.cli.output import note, print_json
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.files import check_place
from penstock.core.phrases import counted
from penstock.observe.dashboard.server import DashboardServer, JobBoard
from penstock.observe.endpoint import Endpoint
from penstock.observe.notices import show_log
from penstock.settings.toml import LiveSettings, Settings, settle
from penstock.testbed.java import find_java


def run(
    job: Annotated[Path, about("run.job")],
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True), about("run.arguments")],
    main_class: Annotated[str | None, Parameter(name="--class"), about("run.class")] = None,
    policy: PolicyText = None,
    options: ScaleOptions | None = None,
    master: Master = None,
    journal: Annotated[str | None, about("run.journal")] = None,
    recommend: Annotated[bool, about("run.recommend")] = False,
    dashboard: DashboardAt = None,
    json: Annotated[bool, about("run.json")] = False,
) -> int:
    """Run an unmodified PySpark script, or a class of a jar, and scale its queries.

    Exits as the script does.
    """
    if not job.is_file():
        raise ConfigError(f"there is no {'script' if main_class is None else 'jar'} {job}")
    options = options or ScaleOptions()

    def load(conf: Mapping[str, str]) -> Settings:
        return _settings(options, policy, journal, recommend, conf, dashboard)

    # A mistake of the command line or the file is said before anything starts.
    options.settings(policy)
    _check_ports(load({}).live)
    os.environ["JAVA_HOME"] = str(find_java().home)
    from penstock.spark.java_job import run_main_class
    from penstock.spark.launch import Launch

    show_log()
    launch = Launch(load, options.config, master)
    try:
        if main_class is None:
            launch.run(job, arguments)
        else:
            run_main_class(launch, job, main_class, arguments, master)
        code = 0
    except PenstockError:
        raise
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        traceback.print_exc()
        code = 1
    status = None if launch.handle is None else launch.handle.status()
    if json:
        print_json({"exit_code": code, "status": status})
    elif status is not None:
        note(f"{counted(status.decisions, 'decision')}, {counted(status.rescales, 'rescale')}")
    return code


def _check_ports(live: LiveSettings) -> None:
    """Refuse an address now that could not be served at the first query."""
    if live.metrics:
        Endpoint(live.metrics, dict).close()
    if live.dashboard:
        DashboardServer(live.dashboard, JobBoard()).close()


def _settings(
    options: ScaleOptions,
    policy: str | None,
    journal: str | None,
    recommend: bool,
    conf: Mapping[str, str],
    dashboard: str | None = None,
) -> Settings:
    """What the file and the Spark configuration say, and what the command line says instead."""
    given: dict[str, dict[str, str]] = {"live": {"mode": "recommend"}} if recommend else {}
    if dashboard is not None:
        given.setdefault("live", {})["dashboard"] = dashboard
    if journal is not None:
        if "://" not in journal:
            check_place(Path(journal))
        given["journal"] = {"path": journal}
    return settle(options.layers(conf, **given), policy)
