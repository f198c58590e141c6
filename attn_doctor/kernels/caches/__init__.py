"""The caches of compiled kernels: their content, its state, damage, and deletion.

`file_tree` reads a folder without following links. `contents` recognises entries by their own
structure. `states` compares them with the machine, `integrity` finds broken files, `survey` joins
all of it, and `deletion` deletes listed files and nothing else. `stale` compares the builder's
record with the present environment. Nothing here unpickles, imports or runs the content of a cache.
"""
