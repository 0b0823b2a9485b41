"""The kinds of faults, a module for each group: what is done, and what is expected meanwhile.

Each fault begins with a fleet of the right size. It breaks something, waits for what it expects,
and repairs it again. What holds after every fault is in `invariants`.
"""

from tests.chaos.faults import broker, clock, disk, driver, executor, sensor, target
from tests.chaos.faults.table import FAULTS, Fault

#: In the order of the docs.
GROUPS = (executor, target, broker, driver, sensor, clock, disk)

__all__ = ["FAULTS", "GROUPS", "Fault"]
