"""``python -m penstock.testbed``: get everything that a testbed needs, ahead of time."""

import sys

from penstock.core.errors import ConfigError
from penstock.testbed.jars import BROKER, connector, fetch
from penstock.testbed.java import ensure_java, pyspark_version, tell_stderr


def main() -> int:
    """Java, installed if need be, and the jars; 2 with one sentence if either cannot be had."""
    try:
        java = ensure_java()
        fetch(BROKER, java)
        fetch(connector(pyspark_version()), java)
    except ConfigError as error:
        tell_stderr(str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
