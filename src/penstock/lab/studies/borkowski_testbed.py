"""The simulated testbed of Borkowski et al. (2019): image by image, VM by VM.

Each image is dealt to the next VM in turn and waits in that VM's own queue: one that was there when
the load jumped works for minutes on what it was dealt, while those that joined later are idle. So
on Square 4 % of the images miss the 5 s while the mean is 4.6 s, as the study reports; with one
queue for all, many would wait a little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np
from msgspec import Struct

from penstock.core.model import ExecutorSample, Fleet, Receipt, Snapshot
from penstock.core.protocols import InstantActuator
from penstock.simulation.engines.engine import Curve, Outcome
from penstock.simulation.engines.fleet import Roster, Startup
from penstock.simulation.faults import Fault

#: VMs differ for good (uniform in 1 ± this), images among each other (relative deviation).
_SPEED_SPREAD, _IMAGE_SPREAD = 0.05, 0.3
_SWING_S = 5.0  #: How long a slow swing of the testbed lasts.
_IDLE_CPU = 0.03
#: Assumed: a quarter that Java takes for its heap by default, a tenth for the system.
_MEMORY = 0.35


class Cloud(Struct, frozen=True, kw_only=True):
    """What the study does not print of its testbed."""

    engine_name: ClassVar[str] = "borkowski2019"

    work_s: float  #: Seconds of a core for an image.
    #: Standard deviation of what the cpu gauge of a VM shows; memory is read exactly.
    gauge_noise: float = 0.05
    #: Relative standard deviation of the work per image over seconds, the same on all VMs: other
    #: tenants, the hypervisor.
    swing: float = 0.05
    #: Seconds that each VM works on moving state whenever one joins or leaves: every part of the
    #: plane that a VM is responsible for then changes.
    transfer_s: float = 0.0
    startup: Startup = Startup(5.0, 25.0)  #: From the request of a VM until it takes images.

    def capacity_rps(self, executors: int) -> float:
        return executors / self.work_s

    def start(
        self, rates_rps: Sequence[float], *, executors: int, seed: int, faults: Sequence[Fault] = ()
    ) -> CloudRun:
        """A run with one rate per second; it knows of no faults but its own."""
        assert not faults
        return CloudRun(self, rates_rps, executors=executors, seed=seed)


@dataclass(slots=True, eq=False)
class Vm:
    """A machine with its queue: all that it was dealt, and when that will be done."""

    id: str
    speed: float
    joined_at_s: float
    free_at_s: float
    dealt_s: float = 0.0
    done_s: float = 0.0  #: What was done when its gauge was last read.

    def work(self, seconds: float, now_s: float) -> None:
        self.free_at_s = max(self.free_at_s, now_s) + seconds
        self.dealt_s += seconds


class CloudRun(InstantActuator):
    """One run: sensor and actuator, and afterwards how long each image took."""

    def __init__(
        self, testbed: Cloud, rates_rps: Sequence[float], *, executors: int, seed: int
    ) -> None:
        chance = np.random.default_rng(seed)
        counts = np.concatenate([[0.0], np.cumsum(rates_rps)])
        images = int(counts[-1])
        arrived_at_s = np.interp(np.arange(images) + 0.5, counts, np.arange(len(counts)))
        works_s = chance.gamma(_IMAGE_SPREAD**-2, testbed.work_s * _IMAGE_SPREAD**2, images)
        works_s *= _swings(chance, len(rates_rps), testbed.swing)[arrived_at_s.astype(int)]
        self._arrived_at_s: list[float] = arrived_at_s.tolist()
        self._works_s: list[float] = works_s.tolist()
        self._rates_rps = rates_rps
        self._testbed = testbed
        self._rng = Random(seed)
        self._roster = Roster(
            executors, startup=testbed.startup, speed_spread=_SPEED_SPREAD, rng=self._rng
        )
        self._vms = [Vm(worker.id, worker.speed, 0.0, 0.0) for worker in self._roster.ready]
        self._turn = 0
        self._now_s = self._read_at_s = 0.0
        self._end_s = float(len(rates_rps))
        self.image_s: list[float] = []  #: Of all images, in the order in which they came.
        self.vm_s = 0.0  #: What all VMs together have run, until their queues were done.

    def read(self, now_s: float) -> Snapshot:
        """Run on to `now_s`; the rate is the generator's own, "very accurately known"."""
        self._advance(now_s)
        length_s, self._read_at_s = now_s - self._read_at_s, now_s
        noise, gauss, dip = self._testbed.gauge_noise, self._rng.gauss, 1.0 - _IDLE_CPU
        samples = []
        for vm in self._vms:
            ahead_s = vm.free_at_s - now_s
            done_s = vm.dealt_s - ahead_s if ahead_s > 0.0 else vm.dealt_s
            busy = (done_s - vm.done_s) / length_s if length_s > 0.0 else 0.0
            vm.done_s = done_s
            cpu = _IDLE_CPU + dip * busy + gauss(0.0, noise)
            cpu = 0.0 if cpu < 0.0 else 1.0 if cpu > 1.0 else cpu
            samples.append(ExecutorSample(vm.id, vm.joined_at_s, True, cpu, None, _MEMORY))
        fleet = Fleet(self._roster.target, len(samples), len(samples))
        rate_rps = self._rates_rps[min(int(np.nextafter(now_s, 0.0)), len(self._rates_rps) - 1)]
        return Snapshot(now_s, fleet, arrival_rps=rate_rps, executors=tuple(samples))

    def apply(self, target_executors: int, now_s: float) -> Receipt:
        """Ask for VMs; those that leave finish their queue, and take no more images."""
        self._advance(now_s)
        asked = self._roster.ask(target_executors, now_s)
        self._roster.release(now_s)
        self._regroup(now_s)
        return Receipt(accepted=True, text="" if asked else "they were asked for already")

    def finish(self) -> Outcome:
        """Run on to the end of the rates. Images overtake each other: their times are apart."""
        self._advance(self._end_s)
        arrivals = Curve(self._arrived_at_s, [float(n + 1) for n in range(len(self.image_s))])
        left_at_s = [at_s + s for at_s, s in zip(self._arrived_at_s, self.image_s, strict=True)]
        departures = Curve(sorted(left_at_s), arrivals.records)
        return Outcome(self._end_s, arrivals, departures, self._roster.paid, self._roster.targets)

    def _advance(self, to_s: float) -> None:
        to_s = min(to_s, self._end_s)
        while (event_s := self._roster.next_event_s) <= to_s:
            self._deal(event_s)
            self._roster.advance(event_s)
            self._regroup(event_s)
        if to_s > self._now_s:
            self._deal(to_s)

    def _deal(self, until_s: float) -> None:
        """Deal what arrives until then to the VMs, in turn."""
        vms, arrived_at_s, works_s, image_s = (
            self._vms, self._arrived_at_s, self._works_s, self.image_s,
        )  # fmt: skip
        turn, there, images = self._turn, len(vms), len(arrived_at_s)
        image = len(image_s)
        while image < images and (at_s := arrived_at_s[image]) <= until_s:
            vm = vms[turn % there]
            turn += 1
            work_s = works_s[image] / vm.speed
            free_at_s = vm.free_at_s
            free_at_s = (free_at_s if free_at_s > at_s else at_s) + work_s
            vm.free_at_s = free_at_s
            vm.dealt_s += work_s
            image_s.append(free_at_s - at_s)
            image += 1
        self._turn = turn
        self.vm_s += there * (until_s - self._now_s)
        self._now_s = until_s

    def _regroup(self, now_s: float) -> None:
        """Take in who has joined and let go who leaves; if any, all the others move state."""
        ready = {worker.id: worker.speed for worker in self._roster.ready}
        before = {vm.id: vm for vm in self._vms}
        if ready.keys() == before.keys():
            return
        for vm in self._vms:
            if vm.id not in ready:
                self.vm_s += max(0.0, vm.free_at_s - now_s)
        self._vms = [before.get(n) or Vm(n, speed, now_s, now_s) for n, speed in ready.items()]
        if self._testbed.transfer_s > 0.0:
            for vm in self._vms:
                vm.work(self._testbed.transfer_s, now_s)


def _swings(chance: np.random.Generator, seconds: int, deviation: float) -> np.ndarray:
    """Factors around 1, one per second, that fade within `_SWING_S`."""
    keeps = float(np.exp(-1.0 / _SWING_S))
    steps = chance.normal(0.0, 1.0, seconds + 1)
    steps[1:] *= np.sqrt(1.0 - keeps * keeps)
    level, levels = 0.0, []
    for step in steps.tolist():
        level = keeps * level + step
        levels.append(level)
    return np.exp(deviation * np.array(levels))
