"""The roads, and the vehicles on them."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from itertools import pairwise, permutations
from math import asin, cos, radians, sin, sqrt
from typing import Any

import pytest

from penstock.testbed.jobs.timeline import Timeline
from penstock.testbed.jobs.traffic import VehiclePositions, road_map, shortest_path

BASE_MS = 1_700_000_000_000
RATES = [30.0] * 20 + [60.0] * 20 + [45.5] * 20


def metres(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The great-circle distance between two reports."""
    here, there = one["pt"], other["pt"]
    north = sin(radians(there["lt"] - here["lt"]) / 2) ** 2
    east = sin(radians(there["lg"] - here["lg"]) / 2) ** 2
    chord = north + cos(radians(here["lt"])) * cos(radians(there["lt"])) * east
    return 2 * 6_371_008.8 * asin(sqrt(chord))


def stream(seed: int = 2) -> VehiclePositions:
    return VehiclePositions(seed, Timeline(RATES), BASE_MS)


@pytest.fixture(scope="module")
def reports() -> list[dict[str, Any]]:
    """All of the timeline: 600, 1,200 and 910 reports."""
    return [json.loads(value) for value in stream().block(0)[:2_710]]


@pytest.fixture(scope="module")
def ways(reports: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The reports of each plate."""
    found = defaultdict(list)
    for report in reports:
        found[report["lp"]].append(report)
    return found


def test_every_junction_can_be_reached_from_every_other_on_roads() -> None:
    junctions, roads = road_map()
    assert (len(junctions), len(roads), len(set(roads))) == (31, 42, 42)
    for start, end in permutations(range(31), 2):
        path = shortest_path(start, end)
        assert (path[0], path[-1]) == (start, end)
        assert set(pairwise(path)) <= set(roads)
        assert len(set(path)) == len(path)


def test_a_path_is_the_shortest_of_two() -> None:
    # On the inner ring (1 to 6) four sections of 350 m with the traffic; none leads back from 1.
    assert shortest_path(1, 5) == [1, 2, 3, 4, 5]
    # From 3 to 6 through the centre (0) would be 3, 4, 0, 1, ... and five sections more.
    assert shortest_path(3, 6) == [3, 4, 5, 6]


def test_every_vehicle_reports_once_in_each_second(reports: list[dict[str, Any]]) -> None:
    seconds: dict[int, list[str]] = defaultdict(list)
    for report in reports:
        seconds[(report["ts"] - BASE_MS) // 1000].append(report["lp"])
    assert [len(seconds[second]) for second in (0, 19, 20, 39)] == [30, 30, 60, 60]
    assert {len(seconds[second]) for second in range(40, 60)} == {45, 46}
    assert all(len(set(plates)) == len(plates) for plates in seconds.values())


def test_vehicles_drive_on_at_10_to_79_kmh(ways: dict[str, list[dict[str, Any]]]) -> None:
    speeds = [
        metres(one, other) / (other["ts"] - one["ts"]) * 3600
        for way in ways.values()
        for one, other in pairwise(way)
        # One that was not on the road in between has not reported.
        if other["ts"] - one["ts"] < 2000
    ]
    assert len(speeds) > 2_000
    assert max(speeds) < 79.5
    # Round a corner the straight line is shorter than the way.
    assert sum(speed < 9.9 for speed in speeds) / len(speeds) < 0.02
    assert sum(speeds) / len(speeds) == pytest.approx(34.0, abs=6.0)


def test_a_vehicle_that_arrives_is_followed_by_one_with_another_plate() -> None:
    # One vehicle for an hour: its route takes some minutes.
    lone = VehiclePositions(1, Timeline([1.0] * 3600), 0)
    plates = [json.loads(value)["lp"] for value in lone.block(0)[:3600]]
    changes = sum(one != other for one, other in pairwise(plates))
    assert 5 < changes < 60
    assert len(set(plates)) == changes + 1


def test_vehicles_are_inside_the_rings_and_a_good_part_is_near_the_centre(
    reports: list[dict[str, Any]],
) -> None:
    centre = {"pt": {"lt": 52.51623, "lg": 13.38532}}
    apart_m = [metres(report, centre) for report in reports]
    assert max(apart_m) < 1_501
    near = sum(each <= 1000 for each in apart_m) / len(apart_m)
    assert 0.3 < near < 0.9


def test_a_block_depends_on_seed_and_number_alone() -> None:
    load = Timeline([3000.0] * 10)
    made = partial(VehiclePositions, timeline=load, base_ms=BASE_MS)
    assert made(1).block(4) == made(1).block(4)
    assert made(1).block(4) != made(2).block(4)


def test_the_block_past_the_end_of_the_timeline_can_be_drawn() -> None:
    assert len(VehiclePositions(1, Timeline([2.0, 2.0]), 0).block(3)) == 5000
