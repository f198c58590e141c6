"""Built kernels as one file, to copy to another machine of the same kind.

`artifact` is the file, `trust` decides whether it may be opened, `pack` makes one from a cache
folder. `compatibility` says how much of one a machine can use, `import_entries` decides what is
imported, and `unpack` imports it.
"""
