"""Built kernels as one file, to be carried to another machine of the same kind.

`artifact.py` is the file, `trust.py` decides whether it may be opened, `packing.py` makes one from
a cache folder, `unpacking.py` proves one and takes it in.
"""
