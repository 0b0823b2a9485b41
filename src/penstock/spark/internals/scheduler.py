"""The fleet and the settings of an application, by its scheduler and its configuration."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from penstock.spark.internals.java_side import JVM_GONE, JavaSide, names_in

LOCALITY_WAIT = "spark.locality.wait"


class Scheduler(JavaSide):
    """Asks for executors, removes them, and reads the settings of the application."""

    def request_total_executors(self, executors: int) -> bool:
        """Ask for that many. A number below the fleet removes none; it only stops replacement."""
        nowhere = self._collections.toScalaMap({})
        return bool(self.context.requestTotalExecutors(executors, 0, nowhere))

    def requested_total_executors(self) -> int | None:
        """The target that Spark has; ``None`` before the first request.

        A kill that adjusts the target while this is ``None`` sets it to zero for good: always
        request the present size first.
        """
        total: int | None = None
        if self._is_local:
            return total
        pairs = self._read_targets().iterator()
        while pairs.hasNext():
            total = (total or 0) + int(pairs.next()._2())
        return total

    @cached_property
    def _read_targets(self) -> Callable[[], Any]:
        """The target by resource profile; Spark 3.5 has it, but no method that tells it."""
        if "getRequestedTotalExecutors" in dir(self.backend):
            return self.backend.getRequestedTotalExecutors  # type: ignore[no-any-return]
        targets = self._private_field("requestedTotalExecutorsPerResourceProfile")
        return lambda: targets

    def executor_ids(self) -> list[str]:
        """All registered executors, those that are leaving included."""
        return ["driver"] if self._is_local else names_in(self.backend.getExecutorIds())

    def leaving(self) -> set[str]:
        """Registered executors that are being decommissioned or removed."""
        if self._is_local:
            return set()
        decommissioning = self.backend.executorsPendingDecommission().keysIterator()
        removed = self.backend.executorsPendingToRemove().keysIterator()
        return {*names_in(decommissioning), *names_in(removed)}

    def decommission(self, executor_ids: Sequence[str]) -> list[str]:
        """Let them finish their tasks, hand over their blocks and leave; returns which do.

        Works only on executors that were started with ``spark.decommission.enabled=true``: others
        take no more work but never leave. Spark replaces them as far as its target is higher.
        """
        scala = self.jvm.scala
        scheduler = self.jvm.org.apache.spark.scheduler
        info = scheduler.ExecutorDecommissionInfo("rescale", scala.Option.empty())
        pairs = self.gateway.new_array(scala.Tuple2, len(executor_ids))
        for place, executor_id in enumerate(executor_ids):
            pairs[place] = scala.Tuple2(executor_id, info)
        return names_in(self.backend.decommissionExecutors(pairs, False, False))

    def kill_idle(self, executor_ids: Iterable[str], *, adjust_target: bool = True) -> list[str]:
        """Kill those without a task, unreplaced with `adjust_target`; safe only between batches."""
        wanted = self._collections.toSeq(list(executor_ids))
        return names_in(self.backend.killExecutors(wanted, adjust_target, False, False))

    def locality_wait(self) -> str:
        """How long a task waits for the executor that has its data, such as ``3s``."""
        return str(self.context.conf().get(LOCALITY_WAIT, "3s"))

    def set_locality_wait(self, duration: str) -> None:
        """Set it for the tasks of stages that start from now on, such as ``0s``."""
        self.context.conf().set(LOCALITY_WAIT, duration)

    def conf(self, key: str, default: str = "") -> str:
        return str(self.context.conf().get(key, default))

    def executor_memory_bytes(self) -> int:
        """The heap that each executor is given."""
        return int(self.context.executorMemory()) * 1024 * 1024

    def uses_dynamic_allocation(self) -> bool:
        return bool(self.context.executorAllocationManager().isDefined())

    def stop_dynamic_allocation(self) -> bool:
        """Stop Spark's own scaler, if one runs; the fleet stays as it is. True if one ran."""
        is_on = self.uses_dynamic_allocation()
        if is_on:
            self.context.executorAllocationManager().get().stop()
        return is_on

    def runs_a_job(self) -> bool:
        """Whether any job runs; between two batches none does."""
        return len(self.context.statusTracker().getActiveJobIds()) > 0

    def is_stopped(self) -> bool:
        """Whether the application has ended, or its Java process is gone."""
        try:
            return bool(self.context.isStopped())
        except JVM_GONE:
            return True

    def master(self) -> str:
        """The cluster manager, such as ``spark://host:7077`` or ``local[*]``."""
        return str(self.context.master())

    def settings(self) -> dict[str, str]:
        """All settings of the running application that are set explicitly."""
        lines = str(self.context.conf().toDebugString()).split("\n")
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def session_settings(self) -> dict[str, str]:
        """All settings of the session, those of the application included."""
        pairs = str(self._java_session.conf().getAll().mkString("\0")).split("\0")
        return dict(pair.split(" -> ", 1) for pair in pairs if " -> " in pair)

    def resource_profiles(self) -> int:
        """How many resource profiles the application uses; 1 is usual."""
        return int(self.context.statusStore().resourceProfileInfo().size())

    def exists(self, place: str) -> bool:
        """Whether a path that Spark can read exists, e.g. ``s3a://bucket/results``."""
        path = self.jvm.org.apache.hadoop.fs.Path(place)
        return bool(path.getFileSystem(self.context.hadoopConfiguration()).exists(path))

    def why_pending(self) -> str:
        """What Kubernetes says of an executor that no node has room for; empty if there is none."""
        if not self.master().startswith("k8s://"):
            return ""
        namespace = self.conf("spark.kubernetes.namespace", "default")
        pods = self.kubernetes_client().pods().inNamespace(namespace)
        own = pods.withLabel("spark-app-selector", self.context.applicationId())
        for pod in own.list().getItems():
            for each in pod.getStatus().getConditions():
                if str(each.getReason()) == "Unschedulable":
                    return str(each.getMessage())
        return ""

    def kubernetes_client(self) -> Any:
        """Spark's own client of the Kubernetes API."""
        return self._private_field("kubernetesClient")

    def _private_field(self, name: str) -> Any:
        """A field of the scheduler; Scala may put the name of a class before its own."""
        kind = self.backend.getClass()
        while kind is not None:
            for field in kind.getDeclaredFields():
                if str(field.getName()).endswith(name):
                    field.setAccessible(True)
                    return field.get(self.backend)
            kind = kind.getSuperclass()
        raise Py4JError(f"Spark's scheduler has no {name}")
