"""One rule from the literature per file; file name = table name = name on the command line."""

from __future__ import annotations

from penstock.policies.static import Static
from penstock.protocols import Policy

DEFAULT_POLICY = "static"

POLICIES: dict[str, type[Policy]] = {
    "static": Static,
}
