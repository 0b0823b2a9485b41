"""The one-line notation: numbers with units, names with options, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose
from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from penstock.core.errors import ConfigError
from penstock.policies.static import Static
from penstock.settings.notation import (
    Notation,
    build,
    describe,
    parse,
    quantity,
    realize,
    split_list,
    written,
)


class Inner(Struct, frozen=True):
    depth: int = 1


class Wave(Struct, frozen=True):
    mean_rps: Annotated[float, Meta(ge=0)] = 40_000.0
    period_s: Annotated[float, Meta(gt=0)] = 60.0
    share_fraction: Annotated[float, Meta(gt=0, le=1)] = 0.5
    count: int = 3
    smooth: bool = False
    mode: Literal["up", "down"] = "up"
    cap: Annotated[int, Meta(ge=1)] | None = None
    levels: tuple[float, ...] = ()
    label: str = "wave"
    inner: Inner = Inner()


@dataclass(frozen=True, slots=True)
class Rule:
    target_fraction: Annotated[float, Meta(gt=0)] = 0.8
    table: tuple[int, int] = (1, 2)
    limit: ClassVar[int] = 5


class Needy(Struct, frozen=True):
    at_s: float
    count: int = 1


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("40k", 40_000.0),
        ("1.5M", 1_500_000.0),
        ("2G", 2e9),
        ("7%", 0.07),
        ("250ms", 0.25),
        ("90s", 90.0),
        ("2m", 120.0),
        ("10min", 600.0),
        ("3h", 10_800.0),
        ("1d", 86_400.0),
        ("-2e3", -2_000.0),
        (".5", 0.5),
        (" 12 k ", 12_000.0),
    ],
)
def test_a_quantity_is_a_number_with_a_unit(text: str, number: float) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize(
    "text", ["", "k", "40K", "3H", "4 parsecs", "30m1h", "2h 5", "nan", "inf", "0x10"]
)
def test_a_bad_quantity_is_refused_with_the_allowed_units(text: str) -> None:
    with pytest.raises(ConfigError, match="period must be a number, alone or with one of k, M, G"):
        quantity(text, "period")


def test_a_number_too_large_for_a_float_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be a finite number, not '1e400'"):
        quantity("1e400")


@given(st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_what_is_written_reads_back_exactly(number: float, seconds: bool) -> None:
    assert quantity(written(number, seconds=seconds)) == number


@pytest.mark.parametrize(
    ("number", "seconds", "text"),
    [
        (40_000.0, False, "40k"),
        (27_500.0, False, "27.5k"),
        (1234.0, False, "1234"),
        (2e6, False, "2M"),
        (0.05, False, "0.05"),
        (0.0, True, "0"),
        (10_800.0, True, "3h"),
        (8_400.0, True, "140min"),
        (370.0, True, "370s"),
        (0.5, True, "0.5"),
    ],
)
def test_numbers_are_written_briefly(number: float, seconds: bool, text: str) -> None:
    assert written(number, seconds=seconds) == text


def test_a_notation_has_a_name_values_and_options() -> None:
    assert parse("trace:FILE.csv,hours=24,peak_executors=12") == Notation(
        "trace", ("FILE.csv",), {"hours": "24", "peak_executors": "12"}
    )
    assert parse("ds2") == Notation("ds2")
    assert parse(" hpa : target = 0.8 ") == Notation("hpa", (), {"target": "0.8"})


@pytest.mark.parametrize(
    "file", ["C:/load.csv", "a/b=c/load.csv", "./x=1.csv", "s3://bucket/x.csv"]
)
def test_a_file_name_may_hold_colons_slashes_and_equals_signs(file: str) -> None:
    assert parse(f"trace:{file},hours=2") == Notation("trace", (file,), {"hours": "2"})


def test_a_value_may_hold_an_equals_sign() -> None:
    assert parse("trace:x.csv,rate=a=b").options == {"rate": "a=b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no name"),
        (":a=1", "has no name"),
        ("sine:mean=1,,period=2", "a piece is empty"),
        ("sine:mean=1,mean=2", "gives mean twice: 1 and 2"),
    ],
)
def test_a_broken_notation_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hpa:target=0.8,ds2", ["hpa:target=0.8", "ds2"]),
        (
            "sine:mean=40k,amplitude=5k,step:before=1k",
            ["sine:mean=40k,amplitude=5k", "step:before=1k"],
        ),
        ("trace:a.csv,hours=2,trace:b.csv", ["trace:a.csv,hours=2", "trace:b.csv"]),
        ("trace:d=1/a.csv,hours=2", ["trace:d=1/a.csv,hours=2"]),
        ("static", ["static"]),
        (
            "sine:mean=1k,period=1h + constant:rate=5,step",
            ["sine:mean=1k,period=1h + constant:rate=5", "step"],
        ),
    ],
)
def test_a_list_is_cut_where_a_new_name_starts(text: str, parts: list[str]) -> None:
    assert split_list(text) == parts


@pytest.mark.parametrize(
    ("text", "message"),
    [("hpa,,ds2", "has an empty entry"), ("target=1,hpa", "starts with an option")],
)
def test_a_broken_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        split_list(text)


def test_each_field_is_read_by_its_type() -> None:
    options = {
        "mean": "60k",
        "period_s": "1h",
        "share": "30%",
        "count": "1k",
        "smooth": "yes",
        "mode": "down",
        "cap": "7",
        "levels": "1k|2k|3",
        "label": "x=y",
    }
    assert build(Wave, options, "wave") == Wave(
        60_000.0, 3600.0, 0.3, 1000, True, "down", 7, (1000.0, 2000.0, 3.0), "x=y"
    )
    assert build(Wave, {"cap": "none"}, "wave").cap is None


def test_a_policy_is_built_the_same_way() -> None:
    assert build(Static, {"executors": "4", "period": "2m"}, "static") == Static(4, 120.0)
    assert build(Rule, {"target": "0.9", "table": "3|4"}, "rule") == Rule(0.9, (3, 4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"peroid": "3h"}, "unknown option 'peroid' in wave: did you mean 'period'?"),
        ({"inner": "1"}, "wave: inner must be JSON of its type, not '1'"),
        ({"period": "0s"}, "wave: period must be greater than 0, not '0s'"),
        ({"share": "150%"}, "wave: share must be greater than 0 and at most 1, not '150%'"),
        ({"cap": "0"}, "wave: cap must be at least 1, not '0'"),
        ({"count": "1.5"}, "wave: count must be a whole number, not '1.5'"),
        ({"smooth": "maybe"}, "wave: smooth must be true or false, not 'maybe'"),
        ({"mode": "left"}, "wave: mode must be one of up, down, not 'left'"),
        ({"levels": "1|x"}, "wave: levels must be a number"),
        ({"label": ""}, "wave: label must not be empty"),
        ({"period": "1", "period_s": "2"}, "wave: period is given twice"),
    ],
)
def test_a_bad_option_is_refused_with_key_value_and_what_is_allowed(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        build(Wave, options, "wave")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_pair_needs_two_values() -> None:
    with pytest.raises(ConfigError, match=r"table must be 2 values separated by \|, not '1'"):
        build(Rule, {"table": "1"}, "rule")


def test_a_class_variable_is_not_an_option() -> None:
    with pytest.raises(ConfigError, match="unknown option 'limit' in rule"):
        build(Rule, {"limit": "1"}, "rule")


def test_what_has_no_default_must_be_given() -> None:
    assert build(Needy, {"at": "2h"}, "lost") == Needy(7200.0)
    with pytest.raises(ConfigError, match="lost: at must be given"):
        build(Needy, {"count": "2"}, "lost")


def test_values_without_a_key_fill_the_fields_in_order() -> None:
    assert realize(Static, parse("static:12")) == Static(12)
    with pytest.raises(ConfigError, match="static: executors is given twice"):
        realize(Static, parse("static:12,executors=3"))
    with pytest.raises(ConfigError, match="takes at most 2 values, so '3' is one too many"):
        realize(Static, parse("static:1,2,3"))


@given(
    st.builds(
        Wave,
        mean_rps=st.floats(0, 1e9),
        period_s=st.floats(1e-3, 1e7),
        share_fraction=st.floats(0.01, 1),
        count=st.integers(-1000, 10**9),
        smooth=st.booleans(),
        mode=st.sampled_from(["up", "down"]),
        cap=st.none() | st.integers(1, 10**6),
        levels=st.lists(st.floats(-1e6, 1e6)).map(tuple),
    )
)
def test_a_described_value_builds_itself_again(wave: Wave) -> None:
    assert realize(Wave, parse(describe(wave, "wave"))) == wave


def test_a_description_leaves_out_defaults_and_units() -> None:
    assert (
        describe(Wave(period_s=10_800.0, share_fraction=0.25), "wave")
        == "wave:period=3h,share=0.25"
    )
    assert describe(Wave(), "wave") == "wave"
    assert describe(Static(12), "static", positional=1) == "static:12"


@given(st.lists(st.sampled_from(["hpa", "ds2:a=1", "trace:x.csv,hours=2,b=3"]), min_size=1))
def test_joining_and_splitting_a_list_are_inverse(notations: list[str]) -> None:
    assert split_list(",".join(notations)) == notations


def test_percent_is_as_close_as_division_makes_it() -> None:
    assert all(isclose(quantity(f"{n}%"), n / 100, rel_tol=0) for n in range(101))
