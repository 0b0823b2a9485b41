"""Journals as one page to look at: self-contained, no network, for one run or several.

`page` makes the text of the page, `write` puts it into a file. Nothing here knows where a journal
comes from, so a simulated run, a live one and a replayed one give the same page.
"""

from __future__ import annotations

from penstock.observe.report.frame import write
from penstock.observe.report.page import page, summary

__all__ = ["page", "summary", "write"]
