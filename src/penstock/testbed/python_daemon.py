"""Spark's daemon of Python workers, without the work that it repeats for each task.

Before each task a worker drops what it knows of its import path, and reads the contents of the
three archives of Spark on it again; after each task it collects garbage among all modules. Together
that is 0.2 s of processor time per task, measured: many times what the records of a batch of two
seconds cost. Here the archives are left out, since the same modules are installed beside them, and
what is imported before the workers are forked is exempt from collection.

Spark starts it (``spark.python.daemon.module``) as it would start its own.
"""

import gc
import os
import sys
from contextlib import suppress


def main() -> None:
    home = os.environ["SPARK_HOME"]
    archives = [each for each in sys.path if each.startswith(home) and os.path.isfile(each)]
    sys.path[:] = [each for each in sys.path if each not in archives]
    for each in archives:
        sys.path_importer_cache.pop(each, None)
    from pyspark import daemon

    with suppress(ImportError):  # not all jobs need them
        import pandas  # noqa: F401
        import pyarrow  # type: ignore[import-untyped]  # noqa: F401
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
