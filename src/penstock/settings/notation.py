"""The one-line notation of the command line: ``name:key=value,key=value``.

Workloads, policies and faults are all written this way, so all of them are read here:
`quantity` reads numbers with units, `parse` takes one notation apart, `split_list` cuts a list of
them, and `build` makes the frozen value that a notation stands for. A value that is itself a
table or a list of lists is written as JSON: ``hpa:behavior={"scale_down":{"window_s":60}}``.

>>> parse("trace:load.csv,hours=24,peak_executors=12")
Notation(name='trace', positional=('load.csv',), options={'hours': '24', 'peak_executors': '12'})
"""

import re
from collections.abc import Mapping
from inspect import signature
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from penstock.core.errors import ConfigError, ModelError, unknown

T = TypeVar("T")

_TIMES = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
#: What may follow a number. Case counts: ``m`` is minutes, ``M`` is mega.
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "%": 0.01} | _TIMES

# A field `period_s` may be written `period=3h`: the unit is in the value, not in the key.
_UNIT_SUFFIX = re.compile(r"(?<=.)_(s|rps|fraction|records|bytes)$")
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z%]*)")
_COMPOUND = re.compile(r"(?=\d)(\d+\s*d\s*)?(\d+\s*h\s*)?(\d+\s*m(in)?\s*)?(\d+\s*s)?")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Of one notation or expression. Lists of policies and workloads have hundreds.
MOST_CHARACTERS = 10_000
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Notation(Struct, frozen=True):
    """One notation taken apart: its name, what stands without a key, and the rest by key."""

    name: str
    positional: tuple[str, ...] = ()
    options: dict[str, str] = {}


def checked_length(text: str, what: str) -> str:
    """The text, unless it is too long to be meant."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(f"{what} must have at most {MOST_CHARACTERS} characters, not {len(text)}")
    return text


def quantity(text: str, what: str = "value") -> float:
    """The number that `text` writes, in base units: records, bytes, seconds, or a fraction.

    Time spans may be written in several units, as Penstock prints them.

    >>> quantity("1.5M"), quantity("90s"), quantity("10min"), quantity("250ms"), quantity("-2e3")
    (1500000.0, 90.0, 600.0, 0.25, -2000.0)
    >>> quantity("5%"), quantity("2h20min"), quantity("2 h 44 min"), quantity("3 min 05 s")
    (0.05, 8400.0, 9840.0, 185.0)
    >>> quantity("3 parsecs", "period")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: period must be a number, alone or with one of k, M, G, %, ms,
        s, m, min, h, d, not '3 parsecs'
    """
    match = _NUMBER.fullmatch(checked_length(text, what).strip())
    if match is None and _COMPOUND.fullmatch(text.strip()):
        return sum(float(count) * UNITS[unit] for count, unit in _NUMBER.findall(text))
    if match is None or match[2] not in UNITS:
        units = ", ".join(unit for unit in UNITS if unit)
        raise ConfigError(f"{what} must be a number, alone or with one of {units}, not '{text}'")
    # Dividing by 1000 or 100 is exact where multiplying by 0.001 or 0.01 is not: 7% is 0.07.
    factor = UNITS[match[2]]
    number = float(match[1])
    number = number * factor if factor >= 1.0 else number / round(1.0 / factor)
    if not isfinite(number):
        raise ConfigError(f"{what} must be a finite number, not '{text}'")
    return number


def written(number: float, *, seconds: bool = False) -> str:
    """The shortest way to write `number` that `quantity` reads back exactly.

    >>> written(40_000.0), written(0.05), written(2_700.0, seconds=True), written(90.5)
    ('40k', '0.05', '45min', '90.5')
    """
    if not isfinite(number) or abs(number) >= 1e15:
        return repr(number)
    for unit in ("d", "h", "min", "s") if seconds else ("G", "M", "k"):
        count = number / UNITS[unit]
        # 1.5k reads well, 1.2345k does not read better than 1234.5
        if number and abs(count) >= 1.0 and count * 10.0 == int(count * 10.0):
            text = f"{count:g}{unit}"
            if quantity(text) == number:
                return text
    return repr(int(number)) if number == int(number) else repr(number)


def parse(text: str) -> Notation:
    """Take one notation apart.

    What follows the first colon is a comma list. A piece is an option if it starts with a key and
    ``=``, otherwise it stands for itself; so a file may have ``:`` and ``/`` in its name, and also
    ``=`` when it is written with its folder.

    >>> parse("hpa")
    Notation(name='hpa', positional=(), options={})
    >>> parse("trace:./day=3/load.csv,hours=2").positional
    ('./day=3/load.csv',)
    """
    name, _, rest = checked_length(text, "name:key=value,...").strip().partition(":")
    name = name.strip()
    if not name:
        raise ConfigError(f"expected name:key=value,... and not '{text}', which has no name")
    positional: list[str] = []
    options: dict[str, str] = {}
    for piece in _pieces(rest) if rest.strip() else ():
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not piece.strip():
            raise ConfigError(f"expected name:key=value,... and not '{text}': a piece is empty")
        if not equals or not _KEY.fullmatch(key):
            positional.append(piece.strip())
        elif key in options:
            raise ConfigError(f"'{text}' gives {key} twice: {options[key]} and {value}")
        else:
            options[key] = value
    return Notation(name, tuple(positional), options)


def split_list(text: str) -> list[str]:
    """Cut a comma list of notations into single ones.

    A piece with ``=`` before any ``:`` goes on with the notation before it, any other starts one.

    >>> split_list("hpa:target=0.8,tolerance=0.1,ds2,trace:load.csv,hours=2")
    ['hpa:target=0.8,tolerance=0.1', 'ds2', 'trace:load.csv,hours=2']
    """
    notations: list[str] = []
    for piece in _pieces(checked_length(text, "a list")):
        head, equals, _ = piece.partition("=")
        if not piece.strip():
            raise ConfigError(f"the list '{text}' has an empty entry")
        if equals and ":" not in head:
            if not notations:
                raise ConfigError(f"the list '{text}' starts with an option, not with a name")
            notations[-1] = f"{notations[-1]},{piece.strip()}"
        else:
            notations.append(piece.strip())
    return notations


def _pieces(text: str) -> list[str]:
    """Cut at the commas that do not stand inside a JSON value."""
    pieces: list[str] = []
    is_open = False  # whether the last piece begins a JSON value that it does not end
    for piece in text.split(","):
        if is_open:
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece)
        value = pieces[-1].partition("=")[2].lstrip()
        opened = value.count("[") + value.count("{")
        is_open = value[:1] in ("[", "{") and opened > value.count("]") + value.count("}")
    return pieces


def build(kind: type[T], options: Mapping[str, str], what: str) -> T:
    """Make a `kind`, a frozen struct or dataclass, from options that are still text.

    A key is the name of a field, with or without its unit: ``period=3h`` sets ``period_s``. The
    type of the field says how its text is read, its `Meta` which values are allowed.

    >>> class Wave(Struct, frozen=True):
    ...     period_s: Annotated[float, Meta(gt=0)] = 60.0
    ...     levels: tuple[int, ...] = ()
    >>> build(Wave, {"period": "3h", "levels": "1|2|3"}, "wave")
    Wave(period_s=10800.0, levels=(1, 2, 3))
    >>> build(Wave, {"period": "0s"}, "wave")
    Traceback (most recent call last):
    penstock.core.errors.ConfigError: wave: period must be greater than 0, not '0s'
    """
    hints = _settable(kind)
    by_key = keys_of(kind)
    values: dict[str, Any] = {}
    for key, text in options.items():
        name = by_key.get(key)
        if name is None:
            raise unknown("option", key, {_short(name) for name in hints}, what)
        if name in values:
            raise ConfigError(f"{what}: {_short(name)} is given twice, also as {name}")
        values[name] = _read(hints[name], text, f"{what}: {key}")
    missing = [_short(name) for name in hints if name not in _defaults(kind).keys() | values.keys()]
    if missing:
        raise ConfigError(f"{what}: {' and '.join(missing)} must be given")
    try:
        return kind(**values)
    except (ModelError, ValueError) as error:
        raise ConfigError(f"{what}: {error}") from None


def keys_of(kind: type[Any]) -> dict[str, str]:
    """The keys that `build` takes for a `kind`, such as period and period_s, with their fields."""
    names = _settable(kind)
    return {_short(name): name for name in names} | {name: name for name in names}


def read_field(kind: type[Any], field: str, text: str, what: str) -> Any:
    """The value that `text` writes for one field of a `kind`."""
    return _read(_settable(kind)[field], text, what)


def realize(kind: type[T], notation: Notation) -> T:
    """`build` a notation; what stands without a key fills the fields in their order.

    >>> class Flat(Struct, frozen=True):
    ...     rate_rps: float = 1.0
    >>> realize(Flat, parse("flat:40k"))
    Flat(rate_rps=40000.0)
    """
    names = [_short(name) for name in _settable(kind)]
    if len(notation.positional) > len(names):
        raise ConfigError(
            f"{notation.name}: takes at most {len(names)} values, "
            f"so '{notation.positional[len(names)]}' is one too many"
        )
    options = dict(zip(names, notation.positional, strict=False))
    for key, text in notation.options.items():
        if _short(key) in options:
            raise ConfigError(f"{notation.name}: {key} is given twice, first without its name")
        options[key] = text
    return build(kind, options, notation.name)


def describe(value: object, name: str, *, positional: int = 0) -> str:
    """The notation of `value` without defaults, the first `positional` fields without keys."""
    pieces = []
    defaults = _defaults(type(value))
    for index, field in enumerate(_settable(type(value))):
        number = getattr(value, field)
        if index < positional:
            pieces.append(_text(number, field))
        elif field not in defaults or number != defaults[field]:
            pieces.append(f"{_short(field)}={_text(number, field)}")
    return f"{name}:{','.join(pieces)}" if pieces else name


def _text(value: object, field: str) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, int | float):
        return written(value, seconds=field.endswith("_s"))
    if isinstance(value, Struct) or (
        isinstance(value, tuple) and any(isinstance(item, tuple | Struct) for item in value)
    ):
        return msgspec.json.encode(value).decode()
    if isinstance(value, tuple):
        return "|".join(_text(item, field) for item in value)
    return str(value)


def _short(name: str) -> str:
    """The key for a field: its name without the unit.

    >>> _short("period_s"), _short("target_fraction"), _short("executors")
    ('period', 'target', 'executors')
    """
    return _UNIT_SUFFIX.sub("", name)


def _settable(kind: type[Any]) -> dict[str, Any]:
    """The fields of `kind` that text can set, in their order, with their full types."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in signature(kind).parameters if _readable(hints[name])}


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The defaults of `kind` by field; a field without one is absent."""
    fields = signature(kind).parameters.values()
    return {field.name: field.default for field in fields if field.default is not field.empty}


def _readable(hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _readable(arguments[0])
    if origin in (Union, UnionType):
        return any(_readable(each) for each in arguments if each is not NoneType)
    if origin is tuple:
        return all(each is Ellipsis or _readable(each) for each in arguments)
    return origin is Literal or hint in (float, int, bool, str) or _is_struct(hint)


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


def _read(hint: Any, text: str, what: str) -> Any:
    """The value of type `hint` that `text` writes, or one sentence on what is allowed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if _is_struct(hint) or (origin is tuple and text.startswith("[")):
        try:
            return msgspec.json.decode(text, type=hint)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{what} must be JSON of its type, not '{text}': {error}") from None
    if origin is Annotated:
        value = _read(arguments[0], text, what)
        try:
            return msgspec.convert(value, hint)
        except msgspec.ValidationError:
            raise ConfigError(f"{what} must be {_range(arguments[1])}, not '{text}'") from None
    if origin in (Union, UnionType):
        return _read_any(arguments, text, what)
    if origin is tuple:
        return _read_tuple(arguments, text, what)
    if origin is Literal:
        for each in arguments:
            if str(each) == text:
                return each
        allowed = ", ".join(str(each) for each in arguments)
        raise ConfigError(f"{what} must be one of {allowed}, not '{text}'")
    return _read_scalar(hint, text, what)


def _read_any(kinds: tuple[Any, ...], text: str, what: str) -> Any:
    if NoneType in kinds and text.lower() == "none":
        return None
    refusals: list[ConfigError] = []
    for kind in kinds:
        if kind is not NoneType and _readable(kind):
            try:
                return _read(kind, text, what)
            except ConfigError as refusal:
                refusals.append(refusal)
    raise refusals[0]


def _read_tuple(kinds: tuple[Any, ...], text: str, what: str) -> tuple[Any, ...]:
    pieces = text.split("|") if text else []
    if kinds[-1] is Ellipsis:
        return tuple(_read(kinds[0], piece, what) for piece in pieces)
    if len(pieces) != len(kinds):
        raise ConfigError(f"{what} must be {len(kinds)} values separated by |, not '{text}'")
    return tuple(_read(kind, piece, what) for kind, piece in zip(kinds, pieces, strict=True))


def _read_scalar(kind: type[Any], text: str, what: str) -> float | int | bool | str:
    if kind is str:
        if not text:
            raise ConfigError(f"{what} must not be empty")
        return text
    if kind is bool:
        if text.lower() not in _BOOLEANS:
            raise ConfigError(f"{what} must be true or false, not '{text}'")
        return _BOOLEANS[text.lower()]
    number = quantity(text, what)
    if kind is int and number != int(number):
        raise ConfigError(f"{what} must be a whole number, not '{text}'")
    return int(number) if kind is int else number


def _range(meta: Meta) -> str:
    bounds = (
        ("greater than", meta.gt),
        ("at least", meta.ge),
        ("less than", meta.lt),
        ("at most", meta.le),
        ("of length at least", meta.min_length),
        ("of length at most", meta.max_length),
    )
    return " and ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)


def address(text: str, name: str) -> tuple[str, int]:
    """The host and the port of ``HOST:PORT``.

    >>> address("127.0.0.1:9404", "metrics"), address("[::1]:9404", "metrics")
    (('127.0.0.1', 9404), ('::1', 9404))
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{name} must be HOST:PORT such as 127.0.0.1:9404, not '{text}'")
    return host, int(port)
