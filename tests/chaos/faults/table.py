"""The table of faults, which the modules of this package fill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict, Unpack

from tests.chaos.scene import Scene

Run = Callable[[Scene], None]


class Facts(TypedDict, total=False):
    """What distinguishes a kind from most others."""

    begins: int  #: The fleet before it; by default the one that there is, or another one.
    moves_load: bool  #: It changes the load by itself; before others, the runner does.
    is_outage: bool  #: Something that the job needs is away for a while.
    spoils_journal: bool  #: Steps are missing in the journal afterwards, by intent.
    overshoots: bool  #: Somebody else asks for more executors than the maximum.
    needs_root: bool  #: It mounts, freezes or cuts something.


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    group: str
    how: str
    expected: str
    run: Run
    begins: int | None = None
    moves_load: bool = False
    is_outage: bool = False
    spoils_journal: bool = False
    overshoots: bool = False
    needs_root: bool = False


FAULTS: dict[str, Fault] = {}


def fault(expected: str, **facts: Unpack[Facts]) -> Callable[[Run], Run]:
    """Put a function into the table: its name, its module as the group, its docstring as what is
    done.
    """

    def add(run: Run) -> Run:
        group = run.__module__.rpartition(".")[2]
        how = " ".join((run.__doc__ or "").split()).removesuffix(".")
        FAULTS[run.__name__] = Fault(run.__name__, group, how, expected, run, **facts)
        return run

    return add
