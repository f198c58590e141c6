"""Reads and applies a team's policy: its demands on machines and the problems that it accepts.

`policy.py` reads the file, `evaluate.py` applies it to a diagnosis, `baseline.py` separates new
problems from known ones.
"""
