"""Counts, rates and times in words: every reason says them alike."""

_SINGULAR = {"are": "is", "have": "has", "do": "does", "carry": "carries"}


def counted(count: float, noun: str, verb: str = "", *, plural: str = "") -> str:
    """A count with its noun, and a verb that agrees with it.

    >>> counted(1, "task"), counted(3, "task"), counted(0, "batch", plural="batches")
    ('1 task', '3 tasks', '0 batches')
    >>> counted(1, "task", "need"), counted(2, "task", "are")
    ('1 task needs', '2 tasks are')
    """
    number = f"{count:g}" if abs(count) < 1e5 else f"{count:.0f}"
    if count != 1:
        return f"{number} {plural or noun + 's'} {verb}".rstrip()
    return f"{number} {noun} {_SINGULAR.get(verb, verb + 's')}" if verb else f"{number} {noun}"


def executors(count: int, verb: str = "") -> str:
    """A fleet, and a verb that agrees with it.

    >>> executors(1), executors(4), executors(0)
    ('1 executor', '4 executors', '0 executors')
    >>> executors(1, "carry"), executors(2, "carry"), executors(1, "are"), executors(1, "stay")
    ('1 executor carries', '2 executors carry', '1 executor is', '1 executor stays')
    """
    return counted(count, "executor", verb)


def resized(before: int, after: int) -> str:
    """What becomes of a fleet.

    >>> resized(3, 4), resized(2, 1), resized(1, 1), resized(5, 5)
    ('4 executors instead of 3', '1 executor instead of 2', '1 executor stays', '5 executors stay')
    """
    if before == after:
        return executors(after, "stay")
    return f"{executors(after)} instead of {before}"


def rate(rps: float) -> str:
    """Records per second in the unit that fits.

    >>> rate(0.0), rate(0.42), rate(400.0), rate(999.7), rate(2_540.0), rate(41_234.0)
    ('0/s', '0.4/s', '400/s', '1.0 k/s', '2.5 k/s', '41.2 k/s')
    >>> rate(1_234_567.0), rate(0.004)
    ('1.23 M/s', '0.004/s')
    """
    if rps >= 999_950.0:
        return f"{rps / 1e6:.2f} M/s"
    if rps >= 999.5:
        return f"{rps / 1e3:.1f} k/s"
    if rps >= 9.95 or rps == 0.0:
        return f"{rps:.0f}/s"
    return f"{rps:.1f}/s" if rps >= 0.05 else f"{rps:.1g}/s"


def duration(seconds: float) -> str:
    """A time span in the unit that fits.

    >>> duration(0.25), duration(12.3), duration(60.0), duration(200.0), duration(7_260.0)
    ('0.2 s', '12 s', '60 s', '3 min', '2 h 01 min')
    """
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def due(seconds: float) -> str:
    """When something is expected, seen from now.

    >>> due(0.2), due(15.0), due(180.0)
    ('now', 'in 15 s', 'in 3 min')
    """
    return "now" if seconds < 1.0 else f"in {duration(seconds)}"
