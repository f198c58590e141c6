"""Probes of attention kernels: hard inputs, the call that gets them, and programs that show faults.

`case.py` describes one call, `probes.py` lists the calls, `lines.py` has the lines of plain torch
that make the inputs of a call, `program.py` makes a whole program of them, and `job.py` runs calls
and compares them with float64. The worker runs the same lines that a printed program holds.
"""
