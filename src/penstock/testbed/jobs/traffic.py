"""The facts of the traffic job: vehicles near the Brandenburg Gate, their speed per window.

Each vehicle reports its place once a second; reports within a kilometre of the gate are kept,
keyed by plate, and give an average speed per vehicle and window.

References
----------
The traffic monitoring job of the Berlin experiments (Phoebe, Daedalus).
"""

from __future__ import annotations

from math import asin, cos, radians, sin, sqrt

CENTRE_LATITUDE = 52.51623
CENTRE_LONGITUDE = 13.38532
RADIUS_M = 1000.0
REPORT_INTERVAL_MS = 1000
SPEEDS_KMH = range(10, 80)
EARTH_RADIUS_M = 6_371_008.8

WINDOW_MS = 10_000
#: The tumbling windows of Daedalus start one second past the full ten.
WINDOW_OFFSET_MS = 1_000
WATERMARK_S = 2


def distance_m(latitude: float, longitude: float, to_latitude: float, to_longitude: float) -> float:
    """The great-circle distance between two places; within 0.5 % of the ellipsoid's.

    A thousandth of a degree of latitude is 111.2 m:

    >>> distance_m(52.516, 13.385, 52.517, 13.385)
    111.19
    """
    north = radians(to_latitude - latitude) / 2
    east = radians(to_longitude - longitude) / 2
    chord = sin(north) ** 2 + cos(radians(latitude)) * cos(radians(to_latitude)) * sin(east) ** 2
    return 2 * EARTH_RADIUS_M * asin(sqrt(chord))


def is_near_centre(latitude: float, longitude: float) -> bool:
    """Whether a report is kept.

    >>> is_near_centre(52.5163, 13.3777), is_near_centre(52.5219, 13.4132)
    (True, False)
    """
    return distance_m(latitude, longitude, CENTRE_LATITUDE, CENTRE_LONGITUDE) <= RADIUS_M


def average_speed_kmh(leg_lengths_m: list[float], reports: int) -> int:
    """The speed that a window of so many reports shows: way over time, in full km/h.

    Nine legs of 13.9 m between ten reports: 125.1 m in 10 s.

    >>> average_speed_kmh([13.9] * 9, reports=10)
    45
    """
    hours = reports * REPORT_INTERVAL_MS / 3_600_000
    return int(sum(leg_lengths_m) / 1000 / hours)


def window_start_ms(event_time_ms: int) -> int:
    """The start of the window that a report falls in.

    >>> window_start_ms(10_999), window_start_ms(11_000)
    (1000, 11000)
    """
    return (event_time_ms - WINDOW_OFFSET_MS) // WINDOW_MS * WINDOW_MS + WINDOW_OFFSET_MS
