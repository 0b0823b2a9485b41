"""Journals and steps in; numbers, sentences and pages out.

Nothing here decides, and nothing here starts a process.
"""
