"""What the command lines of the producer and of the jobs share."""

from __future__ import annotations

import argparse


def pair(text: str) -> tuple[str, str]:
    """A setting as it stands on a command line.

    >>> pair("spark.app.name=a=b")
    ('spark.app.name', 'a=b')
    """
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, not '{text}'")
    return key, value
