"""Runs the main class of a jar in a driver that PySpark starts, and attaches to its session.

The job is Java or Scala and notices nothing. Its main method runs in the Java process of the
driver, called through PySpark's gateway; this process looks for the session that it makes.
"""

import os
import shlex
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

from penstock.core.errors import ConfigError
from penstock.spark.internals import JVM_GONE, session_of_java
from penstock.spark.launch import Launch

LOOK_EVERY_S = 1.0  #: How often the session of the job is looked for, in seconds.


def run_main_class(
    launch: Launch, jar: Path, name: str, arguments: Sequence[str], master: str | None = None
) -> None:
    """Run it to its end. What it throws is raised; if it exits, so does this."""
    from pyspark.java_gateway import launch_gateway

    options = ["--jars", str(jar), *(("--master", master) if master else ()), "pyspark-shell"]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(options)
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    main = _main_method(gateway, jar, name, arguments)
    failures: list[Exception] = []

    def call() -> None:
        try:
            main()
        except Exception as error:
            failures.append(error)

    job = threading.Thread(target=call, name="penstock-main-class", daemon=True)
    job.start()
    while job.is_alive():
        job.join(LOOK_EVERY_S)
        try:
            session = session_of_java(gateway) if launch.handle is None else None
            if session is not None and session.streams.active:
                launch.attach(session)
        except JVM_GONE:
            continue  # the session is not complete yet, or has ended
    if launch.handle is not None:
        launch.handle.stop()
    if failures and isinstance(failures[0], Py4JJavaError):
        raise failures[0]
    if failures:
        raise SystemExit(gateway.proc.wait())  # System.exit in the job ends the Java process


def _main_method(gateway: Any, jar: Path, name: str, arguments: Sequence[str]) -> Any:
    """A function that calls the main method of the class."""
    jvm = gateway.jvm
    words = gateway.new_array(jvm.java.lang.String, len(arguments))
    for place, word in enumerate(arguments):
        words[place] = word
    types = gateway.new_array(jvm.java.lang.Class, 1)
    types[0] = words.getClass()
    given = gateway.new_array(jvm.java.lang.Object, 1)
    given[0] = words
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        method = loader.loadClass(name).getMethod("main", types)
    except Py4JError as error:
        raise ConfigError(
            f"{jar} has no class {name} with a main method: correct --class"
        ) from error
    return lambda: method.invoke(None, given)
