"""At most one attachment sizes the fleet of an application; others would undo what it does.

The mark is a system property of the driver's Java process: attachments of other Python processes,
through the same gateway, see it too.
"""

import os
from contextlib import suppress
from itertools import count
from typing import Any

from penstock.core.errors import ConfigError
from penstock.spark.internals import JVM_GONE, Driver

_numbers = count(1)


class FleetClaim:
    """The claim of one attachment to the fleet of an application."""

    def __init__(self, driver: Driver) -> None:
        self._application = str(driver.context.applicationId())
        self._name = f"penstock.sizes.{self._application}"
        self._owner = f"{os.getpid()} {next(_numbers)}"
        self._properties: Any = driver.jvm.java.lang.System.getProperties()

    def take(self) -> None:
        """Take it, also from a process that has ended; a `ConfigError` if another one has it."""
        holder = self._properties.putIfAbsent(self._name, self._owner)
        if holder in (None, self._owner):
            return
        process = int(str(holder).split()[0])
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            if self._properties.replace(self._name, holder, self._owner):
                return
        except PermissionError:
            pass  # it runs as another user
        raise ConfigError(
            f"another attachment of Penstock (process {process}) already sizes the fleet of "
            f"{self._application}: stop that one first, or attach with mode='recommend'"
        )

    def release(self) -> None:
        """Give it up, if it was taken; the next attachment may act."""
        with suppress(*JVM_GONE):  # the Java process may be gone
            self._properties.remove(self._name, self._owner)
