"""Internals that differ by version of Spark; `make test-versions` tries them on the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.spark.internals.scheduler import Scheduler


class Targets:
    """A Scala map from resource profile to target, as py4j shows it."""

    def __init__(self, *targets: int) -> None:
        self.targets = targets

    def iterator(self) -> Targets:
        self._rest: Iterator[int] = iter(self.targets)
        self._left = len(self.targets)
        return self

    def hasNext(self) -> bool:  # noqa: N802
        return self._left > 0

    def next(self) -> Targets:
        self._left -= 1
        return self

    def _2(self) -> int:
        return next(self._rest)


class NewBackend:
    """Spark 4: a method tells the target."""

    def getRequestedTotalExecutors(self) -> Targets:  # noqa: N802
        return Targets(2, 3)


@dataclass
class Field:
    name: str
    value: object
    is_open: bool = False

    def getName(self) -> str:  # noqa: N802
        return self.name

    def setAccessible(self, is_open: bool) -> None:  # noqa: N802
        self.is_open = is_open

    def get(self, _: object) -> object:
        assert self.is_open
        return self.value


@dataclass
class Kind:
    """A Java class: its own fields, and the class above it."""

    fields: list[Field]
    above: Kind | None = None

    def getDeclaredFields(self) -> list[Field]:  # noqa: N802
        return self.fields

    def getSuperclass(self) -> Kind | None:  # noqa: N802
        return self.above


class OldBackend:
    """Spark 3.5: the target is a private field of a class above that of the cluster manager."""

    def getClass(self) -> Kind:  # noqa: N802
        name = "org$apache$spark$CoarseGrained$$requestedTotalExecutorsPerResourceProfile"
        return Kind([Field("master", "yarn")], Kind([Field(name, Targets(4))]))


def scheduler(backend: Any) -> Scheduler:
    made = Scheduler.__new__(Scheduler)
    made.backend, made._is_local = backend, False
    return made


def test_the_target_is_told_by_a_method_or_else_read_from_its_field() -> None:
    assert scheduler(NewBackend()).requested_total_executors() == 5
    old = scheduler(OldBackend())
    assert [old.requested_total_executors() for _ in range(2)] == [4, 4]


def test_a_field_that_is_gone_is_an_error_that_callers_expect() -> None:
    with pytest.raises(Py4JError, match="Spark's scheduler has no kubernetesClient"):
        scheduler(OldBackend()).kubernetes_client()
