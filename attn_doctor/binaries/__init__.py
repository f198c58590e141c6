"""Reading compiled extensions and libraries without loading them.

`reading.binary` tells what a shared library needs, `reading.versions` which versions of others it
wants and offers, `reading.gpu_code` which GPUs it holds code for, and `unresolved.unresolved` which
of its symbols no library beside it defines. Of files with hundreds of megabytes each reads a few
kilobytes. All are asked through the `Host`, so that what they found can be recorded.

The formats are read here and not by pyelftools or LIEF. Importing either takes longer than a whole
check may last (measured on a busy machine: 250 ms and 780 ms), and pyelftools then takes 50 ms for
the open symbols of one extension, which take 0.3 ms here; neither knows CUDA's fat binaries. What
is read is little and has not changed in decades: headers, the dynamic section, symbol tables,
versions. The tests compare the answers with `readelf`, `cuobjdump` and the loader itself.

A file that is cut, damaged or made to mislead gives an answer that says so (`damaged`), never an
exception and never an endless walk.
"""
