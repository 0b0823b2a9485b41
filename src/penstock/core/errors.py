"""What can go wrong, and where the fault lies.

::

    PenstockError
    ├── ConfigError      the user's input: one sentence, exit code 2, nothing written
    │   └── ModelError   a measurement that cannot be one: NaN, infinite, negative
    ├── SensorError      the job cannot be read now: hold, and read again next turn
    └── ActuatorError    the fleet cannot be changed now: hold, and try again next turn

Anything else is a bug in Penstock: it crashes loudly and the fleet stays as it is.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class PenstockError(Exception):
    """The root of all errors that Penstock raises on purpose."""


class ConfigError(PenstockError):
    """Input that can never work: says what, where, which value, and what is allowed."""


class ModelError(ConfigError):
    """A number that no instrument can have measured, refused where it enters."""


class SensorError(PenstockError):
    """The state of the job could not be read this time."""


class ActuatorError(PenstockError):
    """The fleet could not be changed this time."""


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> ConfigError:
    """The error for a name that is not in a table, with the nearest one that is.

    >>> print(unknown("policy", "hpaa", ["ds2", "hpa", "static"]))
    unknown policy 'hpaa': did you mean 'hpa'? Known: ds2, hpa, static
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    place = f" in {where}" if where else ""
    return ConfigError(f"unknown {kind} '{name}'{place}: {hint}Known: {', '.join(names)}")
