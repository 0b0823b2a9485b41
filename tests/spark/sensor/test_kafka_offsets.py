"""Arithmetic on end offsets, and settings from one client to the other; no broker needed."""

from __future__ import annotations

import random
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import ConfigError
from penstock.spark.sensor.kafka import Brokers, client_settings
from penstock.spark.sensor.offsets import CURVE_INSTANTS, ArrivalCounts, OffsetCurve

A, B = ("bids", 0), ("bids", 1)
PLAIN = {"kafka.bootstrap.servers": "broker:9092"}


def curve(*instants: tuple[float, int, int]) -> OffsetCurve:
    drawn = OffsetCurve()
    for at_s, a, b in instants:
        drawn.add(at_s, {A: a, B: b})
    return drawn


def test_each_partition_has_an_age_of_its_own() -> None:
    """Partition 0 waits for its 50th record, which came at 5 s; partition 1 for one of 15 s."""
    drawn = curve((0.0, 0, 0), (10.0, 100, 10), (20.0, 200, 20))
    assert drawn.waiting_since_s({A: 50, B: 15}) == {A: 5.0, B: 15.0}
    assert drawn.waiting_since_s({A: 50, B: 20}) == {A: 5.0}


def counts(records: list[float], seconds: list[float] | None = None) -> ArrivalCounts:
    counted, at_s = ArrivalCounts(), 0.0
    for number, length in zip(records, seconds or [1.0] * len(records), strict=True):
        at_s += length
        counted.add(at_s, length, number)
    return counted


def test_poisson_arrivals_have_a_dispersion_of_one_in_intervals_of_any_length() -> None:
    draw = random.Random(7)
    lengths = [draw.choice((0.5, 1.0, 1.5)) for _ in range(55)]
    means = [fmean(_dispersion(draw, lengths) for _ in range(40)) for _ in range(2)]
    assert means == [pytest.approx(1.0, abs=0.15)] * 2


def _dispersion(draw: random.Random, lengths: list[float]) -> float:
    """Of records with exponential gaps at 20 per second."""
    records = []
    for length in lengths:
        number, at_s = 0, draw.expovariate(20.0)
        while at_s < length:
            number, at_s = number + 1, at_s + draw.expovariate(20.0)
        records.append(float(number))
    return counts(records, lengths).cv2 or 0.0


def test_a_load_that_rises_evenly_does_not_vary() -> None:
    """From 1,000 to 1,590 records per second; plain variance over mean would be about 23."""
    assert counts([1000.0 + 10 * second for second in range(60)]).cv2 == pytest.approx(0.0, abs=0.1)


def test_without_arrivals_or_with_few_intervals_nothing_is_said() -> None:
    assert counts([0.0] * 30).cv2 is None
    assert counts([100.0] * 9).cv2 is None
    assert counts([100.0] * 10).cv2 == 0.0


def test_only_the_last_minute_counts() -> None:
    varied = [0.0, 400.0] * 10
    assert (counts([*varied, *[100.0] * 30]).cv2 or 0.0) > 10.0
    assert counts([*varied, *[100.0] * 62]).cv2 == 0.0


def test_a_pause_of_the_stream_does_not_make_records_older() -> None:
    """Nothing came between 10 and 60 s; the oldest that waits came at 61 s."""
    drawn = curve((0.0, 0, 0), (10.0, 100, 0), (60.0, 100, 0), (70.0, 200, 0))
    assert drawn.waiting_since_s({A: 110, B: 0}) == {A: 61.0}
    assert drawn.waiting_since_s({A: 100, B: 0}) == {A: 60.0}


def test_a_curve_that_begins_too_late_says_its_beginning_and_that_it_does_not_reach() -> None:
    drawn = curve((30.0, 500, 0), (40.0, 600, 0))
    assert not drawn.reaches({A: 100, B: 0})
    assert drawn.waiting_since_s({A: 100, B: 0}) == {A: 30.0}
    drawn.add(0.0, {A: 0, B: 0})  # read afterwards
    assert drawn.reaches({A: 100, B: 0})
    assert drawn.waiting_since_s({A: 100, B: 0}) == {A: 6.0}


def test_forgetting_keeps_what_is_needed_for_what_waits() -> None:
    drawn = curve(*((float(n), 10 * n, 0) for n in range(100)))
    processed = {A: 505, B: 0}
    before = drawn.waiting_since_s(processed)
    drawn.forget_before(processed)
    assert drawn.waiting_since_s(processed) == before == {A: 50.5}
    assert len(drawn) == 50


def test_a_partition_that_is_new_begins_at_zero() -> None:
    drawn = OffsetCurve()
    drawn.add(0.0, {A: 100})
    drawn.add(10.0, {A: 100, B: 40})
    assert drawn.waiting_since_s({A: 100, B: 20}) == {B: 5.0}


@given(
    st.lists(st.tuples(st.floats(0.1, 9.0), st.integers(1, 500)), min_size=2, max_size=40),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_the_age_is_where_the_curve_crosses_what_is_processed(
    steps: list[tuple[float, int]], share: float
) -> None:
    at_s, end = 0.0, 0
    instants = [(0.0, 0)]
    for seconds, records in steps:
        at_s, end = at_s + seconds, end + records
        instants.append((at_s, end))
    drawn = curve(*((when_s, count, 0) for when_s, count in instants))
    processed = int(share * end)
    oldest_s = drawn.waiting_since_s({A: processed, B: 0})[A]
    # By hand: the last instant at which no more had come than is processed, and the next.
    (low_s, low), (high_s, high) = next(
        pair for pair in pairwise(instants) if pair[1][1] > processed
    )
    expected_s = low_s + (processed - low) / (high - low) * (high_s - low_s)
    assert oldest_s == pytest.approx(expected_s)


def test_a_long_outage_is_remembered_in_bounded_space_and_coarser() -> None:
    """A day of seconds while nothing is processed: the age is right to a hundredth."""
    drawn = OffsetCurve()
    for second in range(86_400):
        drawn.add(float(second), {A: 10 * second})
    assert len(drawn) <= CURVE_INSTANTS
    for processed in (5, 4_000, 400_000, 860_000):
        assert drawn.waiting_since_s({A: processed})[A] == pytest.approx(processed / 10)


def test_settings_for_tls_with_pem_files() -> None:
    given_options = PLAIN | {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": "/etc/me.pem",
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    assert client_settings(given_options) == {
        "bootstrap.servers": "broker:9092",
        "security.protocol": "SSL",
        "ssl.ca.location": "/etc/ca.pem",
        "ssl.certificate.location": "/etc/me.pem",
        "ssl.key.location": "/etc/me.pem",
        "ssl.key.password": "secret",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_settings_for_an_identity_provider() -> None:
    jaas = 'a.b.OAuthBearerLoginModule required clientId="me" clientSecret=hush scope="x";'
    settings = client_settings(
        PLAIN
        | {
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
            "kafka.sasl.jaas.config": jaas,
        }
    )
    assert settings["sasl.oauthbearer.method"] == "oidc"
    assert settings["sasl.oauthbearer.client.id"] == "me"
    assert settings["sasl.oauthbearer.client.secret"] == "hush"


def test_a_source_without_brokers_and_a_setting_that_is_none_are_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"no option kafka\.bootstrap\.servers"):
        client_settings({"subscribe": "bids"})
    with pytest.raises(ConfigError, match=r"no Kafka client can be made: .*no.such.setting"):
        Brokers({"bootstrap.servers": "broker:9092", "no.such.setting": "1"})
