"""``penstock run``: an unmodified PySpark script, scaled."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from penstock.core.errors import ConfigError, PenstockError
from penstock.settings.policy_spec import read_policy_spec
from penstock.settings.toml import FILE_NAME, Settings, load, parse
from penstock.testbed.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.attach import Attachment


def run(
    job: Path,
    /,
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    policy: str | None = None,
    config: Path | None = None,
    journal: Path | None = None,
    recommend: bool = False,
) -> int:
    """Run an unmodified PySpark script and scale its queries. Exits as the script does.

    Parameters
    ----------
    job
        The script. What follows it is passed on to it.
    arguments
        Arguments of the script.
    policy
        One of `penstock policies`, with its parameters as name:key=value,...
    config
        Settings; ./penstock.toml if there is one.
    journal
        Write every turn to this file; one that is there already is continued.
    recommend
        Say what would be done and move nothing.
    """
    if not job.is_file():
        raise ConfigError(f"there is no script {job}")
    settings = _settings(config, policy, journal, recommend)
    os.environ["JAVA_HOME"] = str(find_java().home)
    _show_log()
    from penstock.spark.attach import Attachment
    from penstock.spark.fitness import check_application
    from penstock.spark.launch import Launch

    def check(spark: SparkSession) -> None:
        check_application(spark, settings.limits, settings.live)

    def attach(spark: SparkSession) -> Attachment:
        return Attachment(
            spark,
            settings.policy,
            settings.limits,
            name=settings.spec.label,
            live=settings.live,
            slo_s=settings.goal.slo_s,
            journal=settings.journal.open(settings.spec.label),
        )

    launch = Launch(check, attach)
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
    if launch.handle is not None:
        status = launch.handle.status()
        text = f"{status.decisions} decisions, {status.rescales} rescales"
        print(f"penstock: {text}", file=sys.stderr)  # noqa: T201
    return code


def _settings(
    config: Path | None, policy: str | None, journal: Path | None, recommend: bool
) -> Settings:
    """What the file says, and what the command line says instead."""
    found = Path(FILE_NAME) if config is None and Path(FILE_NAME).is_file() else config
    settings = parse("", "defaults") if found is None else load(found)
    replace = msgspec.structs.replace
    changes: dict[str, Any] = {}
    if policy is not None:
        bounds = {
            "min_executors": settings.limits.min_executors,
            "max_executors": settings.limits.max_executors,
        }
        entry = read_policy_spec(policy, bounds, settings.goal)
        changes["spec"] = entry
    if journal is not None:
        changes["journal"] = replace(settings.journal, path=str(journal))
    if recommend:
        changes["live"] = replace(settings.live, mode="recommend")
    return dataclasses.replace(settings, **changes)


def _show_log() -> None:
    """What Penstock does, on standard error, beside whatever the script logs."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("penstock: %(message)s"))
    ours = logging.getLogger("penstock")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
