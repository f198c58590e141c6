"""Built kernels as one file, to be carried to another machine of the same kind.

`artifact.py` is the file, `trust.py` decides whether it may be opened, `packing.py` makes one from
a cache folder. `layers.py` says how much of one can serve a machine, `taking.py` what of that is
taken in, `unpacking.py` does it, and `moving.py` moves the files.
"""
