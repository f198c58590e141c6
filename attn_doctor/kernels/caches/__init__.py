"""The caches of compiled kernels: what is in them, what still serves, what is broken, and clearing.

`tree` reads a folder without following links; `contents` and the modules it names recognise what
lies there by each cache's own structure; `states` holds it against the machine; `damage` looks for
what no process could use; `removal` deletes listed files and nothing else. `drift` compares the
builder's record with the machine of today. Nothing here unpickles, imports or runs what it finds.
"""
