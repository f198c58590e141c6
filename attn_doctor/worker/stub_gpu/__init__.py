"""Keeps a build on a stub GPU correct: no kernel runs there, so no memory has a useful value.

All of this runs in the examined interpreter: the standard library and torch, Python 3.9 and newer.
The outside uses `report.py` and `program_environment.py`, which need the standard library alone.
"""
