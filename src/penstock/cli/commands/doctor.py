"""``penstock doctor``: whether a job can be scaled, and what to set so that it can."""

import os
import socket
from pathlib import Path
from typing import Annotated

from rich.text import Text

from penstock.cli.options import FleetOptions, Listed, Master, about, bounds_of
from penstock.cli.output import console, print_json
from penstock.core.errors import ConfigError
from penstock.core.phrases import counted
from penstock.settings.spark_conf import origins
from penstock.settings.toml import settle
from penstock.spark.doctor import Application, Finding, Script, examine, read_script
from penstock.testbed.java import find_java, pyspark_version

COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}
CONNECT_TIMEOUT_S = 5.0


def doctor(
    job: Annotated[Path | None, about("job")] = None,
    /,
    *,
    master: Master = None,
    options: FleetOptions | None = None,
    conf: Annotated[Listed, about("doctor.conf")] = None,
    json: Annotated[bool, about("doctor.json")] = False,
) -> int:
    """Check a script, or a cluster, before it is scaled. Exits with 1 on an error.

    The script is read, not run: settings that it computes cannot be seen.
    """
    if job is None and master is None:
        raise ConfigError("doctor needs a script or --master URL to check")
    script = Script(starts_query=True) if job is None else read_script(job)
    spark = _settings(script, master, conf or [])
    layers = (options or FleetOptions()).layers(spark)
    settings = settle(layers)
    application = Application(spark, **bounds_of(settings), triggers=script.triggers)
    findings = [*_machine(), *_script(script, job), *examine(application), *_reach(application)]
    for place, values in origins(settings, layers).items():
        words = ", ".join(f"{key} = {value!r}" for key, value in values.items())
        findings.append(Finding("settings", "ok", f"from {place}: {words}"))
    if json:
        print_json(findings)
    else:
        _print_findings(findings)
    return 1 if any(finding.level == "error" for finding in findings) else 0


def _settings(script: Script, master: str | None, given: list[str]) -> dict[str, str]:
    """What Spark would read: its own file, the script, the command line, the later the stronger."""
    settings = _spark_defaults()
    if remote := os.environ.get("SPARK_REMOTE"):
        settings["spark.remote"] = remote
    settings |= script.conf
    if master is not None:
        settings["spark.master"] = master
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--conf must be key=value, not '{text}'")
        settings[key.strip()] = value.strip()
    return settings


def _spark_defaults() -> dict[str, str]:
    """The settings in spark-defaults.conf, where there is one."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    path = None if folder is None else Path(folder, "spark-defaults.conf")
    if path is None or not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    pairs = (line.replace("=", " ", 1).split(None, 1) for line in lines if line[:1] not in "#")
    return {key: value.strip() for key, value in (pair for pair in pairs if len(pair) == 2)}


def _machine() -> list[Finding]:
    """Whether Spark runs here at all."""
    try:
        spark = pyspark_version()
        java = find_java()
    except ConfigError as error:
        reason, _, change = str(error).partition(": ")
        return [Finding("machine", "error", reason, change)]
    return [Finding("machine", "ok", f"PySpark {spark} on Java {java.version}")]


def _script(script: Script, job: Path | None) -> list[Finding]:
    findings = []
    if not script.starts_query:
        reason = f"{job} starts no streaming query that can be seen"
        findings.append(Finding("query", "warning", reason, "writeStream...start()"))
    if script.hidden:
        reason = f"the script computes {', '.join(script.hidden)}, which is not checked"
        findings.append(Finding("hidden", "warning", reason, "--conf key=value gives its value"))
    return findings


def _reach(application: Application) -> list[Finding]:
    """Whether the master of a standalone cluster answers."""
    url = application.conf.get("spark.master", "")
    if not url.startswith("spark://"):
        return []
    host, _, port = url.removeprefix("spark://").split(",")[0].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S):
            return [Finding("reach", "ok", f"{url} answers")]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        reason = f"{url} does not answer ({why})"
        return [Finding("reach", "error", reason, "start the master, or correct its URL")]


def _print_findings(findings: list[Finding]) -> None:
    """A line per check; the setting to change stands alone, so that it can be copied."""
    screen = console()
    for finding in findings:
        level = Text(f"{finding.level:<7}", style=COLOURS[finding.level])
        screen.print(level, f"{finding.check:<21} {finding.reason}")
        if finding.change:
            screen.print(f"{'':<29} → {finding.change}")
    count = {level: sum(each.level == level for each in findings) for level in COLOURS}
    warnings, errors = counted(count["warning"], "warning"), counted(count["error"], "error")
    screen.print(f"{count['ok']} ok, {warnings}, {errors}", style="dim")
