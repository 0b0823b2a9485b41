"""Traffic monitoring: how fast vehicles near the Brandenburg Gate are, per area and ten seconds.

Each vehicle reports its place once a second. As in Daedalus (2024), section 4.1.3, reports from
more than a kilometre away are left out and each vehicle's speed in a window is worked out from the
places that are left; windows begin one second past the full ten.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from math import cos, hypot, inf, pi, radians, sin
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.testbed.jobs.parsing import parse_json, timestamp_of_millis
from penstock.testbed.jobs.timeline import Timeline

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Array = NDArray[np.float64]
Place = tuple[float, float]

CENTRE_LATITUDE = 52.51623
CENTRE_LONGITUDE = 13.38532
RADIUS_M = 1_000.0
EARTH_RADIUS_M = 6_371_008.8
METRES_PER_DEGREE = EARTH_RADIUS_M * pi / 180.0
#: Of longitude, at the centre.
METRES_PER_DEGREE_EAST = METRES_PER_DEGREE * cos(radians(CENTRE_LATITUDE))
CELL_M = 250.0

WINDOW_S = 10
WINDOW_OFFSET_S = 1
WATERMARK_S = 2

SPEEDS_KMH = range(10, 80)
ROUTES = 1_000
#: Radius of each ring of junctions around the centre, and how many it has.
RINGS = ((350.0, 6), (800.0, 12), (1_500.0, 12))

_PLATES = 26**3 * 10**6
_LAPS = 2_048
#: A prime that does not divide the number of plates, so that no plate comes twice; small enough for
#: 64 bits.
_PLATE_STRIDE = 982_451_653
_LETTERS = [bytes([65 + i // 676, 65 + i // 26 % 26, 65 + i % 26]) for i in range(26**3)]
_GOLDEN = 0.618_033_988_749_895
_EVENT = b'{"lp":"B-%s-%06d","pt":{"lt":%.7f,"lg":%.7f},"ts":%d}'


def speeds_per_area(source: DataFrame) -> DataFrame:
    """From reports in `value` to north, east, vehicles, speed_kmh, starttime and endtime.

    `north` and `east` number the cells of 250 m, from 0 at the centre; a vehicle counts where it
    reported last in the window. A stream of it is in append mode: only there can one aggregation
    follow another, since the second must not see a vehicle twice. It gives a window once the
    watermark, 2 s behind the newest report, has passed its end.
    """
    from pyspark.sql import functions as f

    north = f.floor((f.col("lt") - CENTRE_LATITUDE) * METRES_PER_DEGREE / CELL_M)
    east = f.floor((f.col("lg") - CENTRE_LONGITUDE) * METRES_PER_DEGREE_EAST / CELL_M)
    areas = (
        vehicle_speeds(source)
        .groupBy("window", north.alias("north"), east.alias("east"))
        .agg(f.count(f.lit(1)).alias("vehicles"), f.avg("speed_kmh").alias("speed_kmh"))
    )
    times = "window.start AS starttime", "window.end AS endtime"
    return areas.selectExpr("north", "east", "vehicles", "speed_kmh", *times)


def vehicle_speeds(source: DataFrame) -> DataFrame:
    """The plate of each vehicle in a window, its last place lt and lg, and its speed_kmh."""
    from pyspark.sql import functions as f

    events = parse_json(
        source,
        "lp STRING, pt STRUCT<lt: DOUBLE, lg: DOUBLE>, ts BIGINT",
        observation="vehicles",
        required=("lp", "pt.lt", "pt.lg", timestamp_of_millis("ts")),
    )
    reports = events.selectExpr(
        "lp AS plate", "pt.lt", "pt.lg", f"{timestamp_of_millis('ts')} AS at"
    )
    centre = f.lit(CENTRE_LATITUDE), f.lit(CENTRE_LONGITUDE)
    near = reports.where(distance_m(f.col("lt"), f.col("lg"), *centre) <= RADIUS_M)
    window = f.window("at", f"{WINDOW_S} seconds", startTime=f"{WINDOW_OFFSET_S} seconds")
    ways = (
        near.withWatermark("at", f"{WATERMARK_S} seconds")
        .groupBy(window.alias("window"), "plate")
        .agg(f.sort_array(f.collect_list(f.struct("at", "lt", "lg"))).alias("way"))
    )
    way = f.col("way")
    legs = f.size(way) - 1
    legs_m = f.zip_with(
        f.slice(way, 1, legs),
        f.slice(way, 2, legs),
        lambda one, other: distance_m(one["lt"], one["lg"], other["lt"], other["lg"]),
    )
    way_m = f.aggregate(legs_m, f.lit(0.0), lambda total, leg: total + leg)
    last = f.element_at(way, -1)
    took_us = f.unix_micros(last["at"]) - f.unix_micros(way[0]["at"])
    return ways.select(
        "window",
        "plate",
        last["lt"].alias("lt"),
        last["lg"].alias("lg"),
        # 3.6 km/h are a metre per second; no time between reports is no speed.
        (f.try_divide(way_m, took_us / 1e6) * 3.6).alias("speed_kmh"),
    )


def distance_m(
    latitude: Column, longitude: Column, to_latitude: Column, to_longitude: Column
) -> Column:
    """The great-circle distance between two places, after the haversine formula."""
    from pyspark.sql import functions as f

    north = f.radians(to_latitude - latitude) / 2
    east = f.radians(to_longitude - longitude) / 2
    chord = f.pow(f.sin(north), f.lit(2)) + f.cos(f.radians(latitude)) * f.cos(
        f.radians(to_latitude)
    ) * f.pow(f.sin(east), f.lit(2))
    return f.asin(f.sqrt(chord)) * (2 * EARTH_RADIUS_M)


class VehiclePositions:
    """Reports of vehicles that drive along shortest paths; the rate is the number of vehicles.

    In a second with 100 events, vehicles 0 to 99 report once each. A vehicle drives one of 1,000
    routes from junction to junction, each section at a speed of its own; when it arrives, another
    one with another plate sets out on the same route.

    The same seed and the same timeline give the same bytes. The timeline starts at `base_ms`, in
    milliseconds since the epoch; past its end, vehicles are new in every second.

    Two vehicles, for two seconds:

    >>> stream = VehiclePositions(seed=1, timeline=Timeline([2.0, 2.0]), base_ms=0)
    >>> for event in stream.block(0)[:4]:
    ...     print(event.decode())
    {"lp":"B-IQI-989159","pt":{"lt":52.5162300,"lg":13.3971427},"ts":0}
    {"lp":"B-VBH-974503","pt":{"lt":52.5097409,"lg":13.3896465},"ts":500}
    {"lp":"B-IQI-989159","pt":{"lt":52.5163386,"lg":13.3970949},"ts":1000}
    {"lp":"B-VBH-974503","pt":{"lt":52.5097506,"lg":13.3897060},"ts":1500}
    """

    block_size: ClassVar[int] = 5_000

    def __init__(self, seed: int, timeline: Timeline, base_ms: int) -> None:
        self._timeline = timeline
        self._base_ms = base_ms
        rng = np.random.default_rng([seed, 1])
        self._first_plate = int(rng.integers(_PLATES))
        self._draw_routes(rng)

    def block(self, number: int) -> list[bytes]:
        events = np.arange(number * self.block_size, (number + 1) * self.block_size)
        due_ms = self._timeline.due_ms(events, self._base_ms)
        vehicles = self._vehicles(events)
        routes = vehicles % ROUTES
        lasts_s = self._lasts_s[routes]
        # Vehicles of one route set out at different times. Places follow from the time alone.
        driven_s = (due_ms - self._base_ms) / 1e3 + vehicles * _GOLDEN % 1.0 * lasts_s
        laps, place_s = np.divmod(driven_s, lasts_s)
        at_s = self._starts_s[routes] + place_s
        plates = self._plates(vehicles, laps)
        rows = zip(
            map(_LETTERS.__getitem__, (plates // 10**6).tolist()),
            (plates % 10**6).tolist(),
            np.interp(at_s, self._knots_s, self._latitudes).tolist(),
            np.interp(at_s, self._knots_s, self._longitudes).tolist(),
            due_ms.tolist(),
            strict=True,
        )
        return [_EVENT % row for row in rows]

    def _vehicles(self, events: NDArray[np.int64]) -> NDArray[np.int64]:
        """Which vehicle reports: the place of the event among those of its second."""
        seconds, where = np.unique(
            np.floor(self._timeline.due_s(events)).astype(np.int64), return_inverse=True
        )
        firsts = np.array([self._timeline.due_by(float(second)) for second in seconds.tolist()])
        vehicles: NDArray[np.int64] = np.maximum(events - firsts[where], 0)
        return vehicles

    def _plates(self, vehicles: NDArray[np.int64], laps: Array) -> NDArray[np.uint64]:
        """Numbers of plates: all different among 8.5 million vehicles and 2,048 laps."""
        numbers = (vehicles * _LAPS + laps.astype(np.int64) % _LAPS).astype(np.uint64)
        scattered = numbers % np.uint64(_PLATES) * np.uint64(_PLATE_STRIDE) % np.uint64(_PLATES)
        plates: NDArray[np.uint64] = (scattered + np.uint64(self._first_plate)) % np.uint64(_PLATES)
        return plates

    def _draw_routes(self, rng: np.random.Generator) -> None:
        """All routes one after the other on one axis of time, to look places up at once."""
        junctions = np.array(road_map()[0])
        knots_s: list[float] = []
        places: list[int] = []
        starts_s, lasts_s = [], []
        for _ in range(ROUTES):
            start, end = rng.choice(len(junctions), size=2, replace=False).tolist()
            path = shortest_path(start, end)
            # A second lies between the end of a route and the start of the next.
            now_s = knots_s[-1] + 1.0 if knots_s else 0.0
            starts_s.append(now_s)
            knots_s.append(now_s)
            for length_m in _lengths_m(path):
                now_s += length_m * 3.6 / int(rng.integers(SPEEDS_KMH.start, SPEEDS_KMH.stop))
                knots_s.append(now_s)
            places += path
            lasts_s.append(now_s - starts_s[-1])
        self._knots_s = np.array(knots_s)
        self._latitudes = CENTRE_LATITUDE + junctions[places, 0] / METRES_PER_DEGREE
        self._longitudes = CENTRE_LONGITUDE + junctions[places, 1] / METRES_PER_DEGREE_EAST
        self._starts_s = np.array(starts_s)
        self._lasts_s = np.array(lasts_s)


@cache
def road_map() -> tuple[tuple[Place, ...], tuple[tuple[int, int], ...]]:
    """Junctions as metres (north, east) of the centre, and one-way roads between them.

    Every junction can be reached from every other. The rings turn one way and the other; spokes
    lead in and out.

    >>> junctions, roads = road_map()
    >>> len(junctions), len(roads)
    (31, 42)
    """
    junctions: list[Place] = [(0.0, 0.0)]
    roads: list[tuple[int, int]] = []
    firsts = []
    for ring, (radius_m, count) in enumerate(RINGS):
        first = len(junctions)
        firsts.append(first)
        for i in range(count):
            angle = 2 * pi * i / count
            junctions.append((radius_m * cos(angle), radius_m * sin(angle)))
            here, after = first + i, first + (i + 1) % count
            roads.append((after, here) if ring == 1 else (here, after))
    inner, middle, outer = firsts
    roads += [(0, inner), (inner + 3, 0)]
    roads += [(inner + 1, middle + 2), (inner + 4, middle + 8)]
    roads += [(middle + 4, inner + 2), (middle + 10, inner + 5)]
    roads += [(middle + i, outer + i) for i in (1, 5, 9)]
    roads += [(outer + i, middle + i) for i in (3, 7, 11)]
    return tuple(junctions), tuple(roads)


def shortest_path(start: int, end: int) -> list[int]:
    """The junctions on the shortest way, both ends included.

    >>> shortest_path(0, 3), shortest_path(3, 0)
    ([0, 1, 2, 3], [3, 4, 0])
    """
    following = _next_junctions()
    path = [start]
    while path[-1] != end:
        path.append(int(following[path[-1], end]))
    return path


@cache
def _next_junctions() -> NDArray[np.int64]:
    """Where to go next from one junction to another, after Floyd and Warshall."""
    junctions, roads = road_map()
    count = len(junctions)
    apart_m = np.full((count, count), inf)
    following = np.full((count, count), -1, dtype=np.int64)
    for start, end in roads:
        (apart_m[start, end],) = _lengths_m([start, end])
        following[start, end] = end
    for via in range(count):
        detour_m = apart_m[:, via, None] + apart_m[None, via, :]
        shorter = detour_m < apart_m
        apart_m = np.where(shorter, detour_m, apart_m)
        following = np.where(shorter, following[:, via, None], following)
    return following


def _lengths_m(path: list[int]) -> list[float]:
    junctions = road_map()[0]
    places = [junctions[each] for each in path]
    return [hypot(there[0] - here[0], there[1] - here[1]) for here, there in pairwise(places)]
