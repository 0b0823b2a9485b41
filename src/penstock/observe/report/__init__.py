"""Journals as one page to look at: self-contained, no network, for one run or several.

Nothing here knows where a journal comes from, so a simulated run, a live one and a replayed one
give the same page.
"""
