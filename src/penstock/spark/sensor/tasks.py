"""Finished tasks: what each took and read, and how much the time per record varies."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.spark.internals import Driver, Json

TASKS_PER_STAGE = 128  #: A stage with more tasks than this is judged by its first ones.


class FinishedTask(Struct, frozen=True, gc=False):
    """One task. `duration_s` is what it held its slot for, `run_s` what it ran, `cpu_s` what the
    executor's Java process computed for it, `fetch_wait_s` what it waited for shuffled data."""

    executor: str
    duration_s: float
    run_s: float
    cpu_s: float
    fetch_wait_s: float = 0.0
    records: int = 0

    @classmethod
    def of(cls, task: Json) -> FinishedTask:
        metrics = task["taskMetrics"]
        shuffled = metrics["shuffleReadMetrics"]
        return cls(
            task["executorId"],
            duration_s=task["duration"] / 1e3,
            run_s=metrics["executorRunTime"] / 1e3,
            cpu_s=metrics["executorCpuTime"] / 1e9,
            fetch_wait_s=shuffled["fetchWaitTime"] / 1e3,
            records=metrics["inputMetrics"]["recordsRead"] + shuffled["recordsRead"],
        )

    @property
    def off_cpu_s(self) -> float:
        """The time in which it ran, but neither computed in Java nor waited for a shuffle."""
        return max(0.0, self.run_s - self.cpu_s - self.fetch_wait_s)


def finished_tasks(driver: Driver, stage: tuple[int, int] | None) -> list[FinishedTask]:
    """The tasks of a complete stage, given with its attempt."""
    if stage is None:
        return []
    return [
        FinishedTask.of(task)
        for task in driver.tasks(*stage, TASKS_PER_STAGE)
        if task["status"] == "SUCCESS" and "taskMetrics" in task
    ]


class Spread(Struct, frozen=True, gc=False):
    """How much the time per record varies, from the means of tasks.

    A task of m records shows only their mean time. If records are alike and independent, the
    variance of that mean is 1/m of the variance of one record. So the squared deviation of each
    task is multiplied by its records before the mean is taken over tasks (less one, since the mean
    time comes from the same tasks). What a task costs besides its records counts as theirs.

    Two tasks of 100 records took 0.9 s and 1.1 s, so 9 and 11 ms per record: 10 % from the mean.

    >>> slow, fast = FinishedTask("1", 2, 1.1, 1, 0, 100), FinishedTask("1", 2, 0.9, 1, 0, 100)
    >>> round(Spread.of([slow, fast]).cv2, 9)  # (100 * 0.1**2 + 100 * 0.1**2) / 1
    2.0
    """

    squares: float = 0.0
    freedom: int = 0

    @classmethod
    def of(cls, tasks: Sequence[FinishedTask]) -> Spread:
        read = [task for task in tasks if task.records and task.run_s]
        if len(read) < 2:
            return cls()
        mean_s = sum(task.run_s for task in read) / sum(task.records for task in read)
        off_mean = (task.records * (task.run_s / task.records / mean_s - 1) ** 2 for task in read)
        return cls(sum(off_mean), len(read) - 1)

    @property
    def cv2(self) -> float | None:
        """The squared coefficient of variation of the time of one record."""
        return self.squares / self.freedom if self.freedom else None
