"""Proves that an attention kernel is right: hard inputs, a float64 reference, and rounding bounds.

`probes.py` lists the inputs, `calls.py` runs a kernel on each of them, `exact.py` computes rows of
attention and gradients in float64 together with the rounding error to expect, `rows.py` chooses the
rows, and `compare.py` says whether a result is right. `--live` and the kernel builder share it.
"""
