"""Queues: how long a record waits for one of ``k`` servers, and how many servers it takes.

A station is a GI/G/k queue: arrivals and service times of any distribution, known by mean and
squared coefficient of variation (0 regular, 1 Poisson or exponential, above 1 bursty).
"""

from math import floor, inf

from msgspec import Struct

from penstock.core.errors import ModelError

#: A chance too small to change any sum of times; further servers only make it smaller.
NEVER = 1e-18


class Station(Struct, frozen=True, gc=False):
    """One operator as a queue: records come in, each keeps one server busy for a while."""

    arrival_rps: float
    service_rps: float
    arrival_cv2: float = 1.0
    service_cv2: float = 1.0

    @property
    def offered(self) -> float:
        """The servers that the work would keep busy."""
        return self.arrival_rps / self.service_rps

    def utilisation(self, servers: int) -> float:
        return self.arrival_rps / (servers * self.service_rps)


def erlang_c(servers: int, offered: float) -> float:
    """The chance to find all servers busy in an M/M/k queue; one if they cannot keep up.

    `offered` is arrival over service rate. By the recursion of Erlang B,
    ``B(k) = a B(k-1) / (k + a B(k-1))``, which neither overflows nor cancels, then
    ``C = B / (1 - rho (1 - B))``.

    >>> erlang_c(1, 0.5), erlang_c(4, 3.0)
    (0.5, 0.509434)
    """
    if offered >= servers:
        return 1.0
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = offered * blocked / (k + offered * blocked)
        if blocked < NEVER:
            return 0.0
    return _waits(blocked, offered / servers)


def response_time_s(station: Station, servers: int, wait_chance: float | None = None) -> float:
    """Mean seconds from arrival to completion; infinite if the servers cannot keep up.

    ``T = 1/mu + (ca2 + cs2) / 2k x P / (mu (1 - rho))`` with ``P`` by Erlang C unless given.

    >>> response_time_s(Station(arrival_rps=30, service_rps=10, service_cv2=0.25), servers=4)
    0.131840
    """
    rho = station.utilisation(servers)
    if rho >= 1.0:
        return inf
    if wait_chance is None:
        wait_chance = erlang_c(servers, station.offered)
    return _response_s(station, servers, rho, wait_chance)


def fewest_servers(station: Station, within_s: float) -> int:
    """The smallest number of servers whose mean response time is at most `within_s`.

    Each further server makes the response time shorter, down to that of the service alone, so
    the search ends at the first hit; it starts where the queue is stable and carries Erlang's
    recursion along.

    >>> fewest_servers(Station(arrival_rps=30, service_rps=10), within_s=0.12)
    5
    >>> fewest_servers(Station(arrival_rps=30, service_rps=10), within_s=0.1)
    Traceback (most recent call last):
    penstock.core.errors.ModelError: no number of servers answers within 0.1 s: the service
        takes 0.1 s
    """
    if within_s * station.service_rps <= 1.0:
        raise ModelError(
            f"no number of servers answers within {within_s:g} s: "
            f"the service takes {1.0 / station.service_rps:g} s"
        )
    offered = station.offered
    blocked = 1.0
    servers = fewest_stable(station)
    for k in range(1, servers):
        blocked = offered * blocked / (k + offered * blocked)
    while True:
        blocked = offered * blocked / (servers + offered * blocked)
        rho = offered / servers
        if _response_s(station, servers, rho, _waits(blocked, rho)) <= within_s:
            return servers
        servers += 1


class BatchStation(Struct, frozen=True, gc=False):
    """A micro-batch job as one queue: a batch takes all that waits, and the fleet is its server."""

    arrival_rps: float
    work_executors: float  #: How many executors the records keep busy.
    trigger_s: float  #: Between starts of batches, unless they take longer.
    fixed_s: float = 0.0  #: What a batch takes besides its records.
    arrival_cv2: float = 1.0
    service_cv2: float = 1.0

    @property
    def shortest_s(self) -> float:
        """What remains with any number of executors: half a trigger, and the fixed cost."""
        return max(self.trigger_s, self.fixed_s) / 2.0 + self.fixed_s

    def response_time_s(self, executors: int) -> float:
        """Mean seconds from arrival to commit; infinite if the executors cannot keep up.

        ``T = P/2 + fixed + rho P + Tq``: half the time ``P`` between two batches until the next
        one starts, and all of that batch, because its records are committed together. ``Tq`` is
        the wait of a GI/G/1 queue whose server is the fleet: what records that come in bursts
        and differ in work add.

        30 records/s keep 3.9 executors busy. Eight are busy for 0.4875 of the time: 1 s until the
        trigger of 2 s, 0.975 s for the batch, and 0.0155 s for bursts.

        >>> BatchStation(arrival_rps=30, work_executors=3.9, trigger_s=2).response_time_s(8)
        1.990457
        """
        rho = self.work_executors / executors if executors > 0 else inf
        if rho >= 1.0:
            return inf
        period_s = max(self.trigger_s, self.fixed_s / (1.0 - rho))
        batch_s = self.fixed_s + rho * period_s
        if self.arrival_rps == 0.0 or rho == 0.0:
            return period_s / 2.0 + batch_s
        fleet = Station(
            self.arrival_rps, self.arrival_rps / rho, self.arrival_cv2, self.service_cv2
        )
        waits_s = response_time_s(fleet, 1) - 1.0 / fleet.service_rps
        return period_s / 2.0 + batch_s + waits_s

    def fewest_executors(self, within_s: float) -> int:
        """The smallest fleet whose response time is at most `within_s`, above `shortest_s`.

        >>> BatchStation(arrival_rps=30, work_executors=3.9, trigger_s=2).fewest_executors(3.0)
        5
        """
        low = floor(self.work_executors)
        high = low + 1
        while self.response_time_s(high) > within_s:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self.response_time_s(middle) > within_s:
                low = middle
            else:
                high = middle
        return high


def fewest_stable(station: Station) -> int:
    """The smallest number of servers that keeps up at all.

    >>> fewest_stable(Station(arrival_rps=30, service_rps=10))
    4
    """
    return floor(station.offered) + 1


def _waits(blocked: float, rho: float) -> float:
    """Erlang C from Erlang B."""
    return blocked / (1.0 - rho * (1.0 - blocked))


def _response_s(station: Station, servers: int, rho: float, wait_chance: float) -> float:
    variation = (station.arrival_cv2 + station.service_cv2) / (2.0 * servers)
    return (1.0 + variation * wait_chance / (1.0 - rho)) / station.service_rps
