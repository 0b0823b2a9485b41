"""Attaches to a PySpark job whose Spark configuration says ``spark.penstock.enabled=true``.

``penstock.pth`` imports this whenever Python starts, so it loads nothing: it waits until PySpark's
writer of streams is imported, and reads the setting when a query has started. Nothing here may
stop the job. Workers of Spark are left alone; ``PENSTOCK_HOOK=off`` switches it off.
"""

# Annotations would need `typing`, which takes longer to load than this may.
# mypy: ignore-errors

import os
import sys

WRITERS = ("pyspark.sql.streaming.readwriter", "pyspark.sql.connect.streaming.readwriter")


class WriterFinder:
    """Finds the modules of PySpark's stream writers, and wraps what starts a query in them."""

    def find_spec(self, name, path=None, target=None):
        if name not in WRITERS:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path)
        loader = getattr(spec, "loader", None)
        execute = getattr(loader, "exec_module", None)

        def executed(module):
            del loader.exec_module  # an archive has one loader for many modules
            execute(module)
            for method in ("start", "toTable"):
                usual = getattr(module.DataStreamWriter, method, None)
                if usual is not None:
                    setattr(module.DataStreamWriter, method, _attaching(usual))

        if execute is not None:
            loader.exec_module = executed
        return spec


def _attaching(start):
    from functools import wraps

    @wraps(start)
    def started(writer, *arguments, **options):
        query = start(writer, *arguments, **options)
        try:
            session = getattr(writer, "_session", None) or writer._df.sparkSession
            is_on = not _is_off() and session.conf.get("spark.penstock.enabled", "false")
            if is_on and is_on.lower() != "false":
                from penstock.spark.launch import attach_configured

                attach_configured(session)
        except Exception as error:
            import logging

            logging.getLogger("penstock").warning("Penstock does not scale this job: %s", error)
        return query

    return started


def _is_off():
    return os.environ.get("PENSTOCK_HOOK", "on").lower() in ("off", "false", "0", "no")


if not (_is_off() or any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ)):
    sys.meta_path.insert(0, WriterFinder())
