"""``penstock run``: an unmodified PySpark script, scaled."""

from __future__ import annotations

import dataclasses
import logging
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from penstock.cli.options import Master, PolicyText, ScaleOptions, about
from penstock.cli.output import note, print_json
from penstock.core.errors import ConfigError, PenstockError
from penstock.core.files import check_place
from penstock.core.phrases import counted
from penstock.settings.header import journal_header
from penstock.settings.toml import FILE_NAME, Settings
from penstock.testbed.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.attach import Attachment


def run(
    job: Annotated[Path, about("run.job")],
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True), about("run.arguments")],
    policy: PolicyText = None,
    options: ScaleOptions | None = None,
    master: Master = None,
    journal: Annotated[Path | None, about("run.journal")] = None,
    recommend: Annotated[bool, about("run.recommend")] = False,
    json: Annotated[bool, about("run.json")] = False,
) -> int:
    """Run an unmodified PySpark script and scale its queries. Exits as the script does."""
    if not job.is_file():
        raise ConfigError(f"there is no script {job}")
    options = options or ScaleOptions()
    settings = _settings(options, policy, journal, recommend)
    config = options.config or Path(FILE_NAME)
    os.environ["JAVA_HOME"] = str(find_java().home)
    _show_log()
    from penstock.spark.attach import Attachment
    from penstock.spark.changes import SettingsSource
    from penstock.spark.launch import Launch
    from penstock.spark.scaling import check_application

    spec, goal, live = settings.spec, settings.goal, settings.live

    def attach(spark: SparkSession) -> Attachment:
        kept = settings.journal.open(journal_header(spec, goal))
        source = SettingsSource(config, lambda: _settings(options, policy, journal, recommend))
        return Attachment(spark, spec, goal=goal, live=live, journal=kept, source=source)

    launch = Launch(lambda spark: check_application(spark, spec.limits, live), attach, master)
    try:
        launch.run(job, arguments)
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


def _settings(
    options: ScaleOptions, policy: str | None, journal: Path | None, recommend: bool
) -> Settings:
    """What the file says, and what the command line says instead."""
    settings = options.settings(policy)
    if journal is not None:
        check_place(journal)
        kept = msgspec.structs.replace(settings.journal, path=str(journal))
        settings = dataclasses.replace(settings, journal=kept)
    if recommend:
        live = msgspec.structs.replace(settings.live, mode="recommend")
        settings = dataclasses.replace(settings, live=live)
    return settings


def _show_log() -> None:
    """Log what Penstock does on standard error, beside what the script logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("penstock: %(message)s"))
    ours = logging.getLogger("penstock")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
