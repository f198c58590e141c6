"""Auditing the backends: calls that kernels have failed on, shrunk to programs where one is wrong.

`plan.py` lists what each backend is called with, `run.py` runs it within a time budget, `calls.py`
runs calls in a process of their own, `shrink.py` makes a fault small, `faults.py` says which faults
are the same or known, and `progress_file.py` keeps what was done.
"""
