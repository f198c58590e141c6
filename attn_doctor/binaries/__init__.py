"""Reading compiled extensions and libraries without loading them.

`read.binary` returns what a shared library needs, `read.versions` the symbol versions that it
requires and defines, and `read.gpu_code` the GPUs that it contains code for.
`unresolved.unresolved` returns its symbols that no other library defines. Each reads a few
kilobytes, even of files with hundreds of megabytes. All are called through the `Host`, so that
their results can be recorded.

The formats are read here and not by pyelftools or LIEF. Importing either takes longer than a whole
check may last (measured on a busy machine: 250 ms and 780 ms), and pyelftools then takes 50 ms for
the open symbols of one extension, which take 0.3 ms here; neither knows CUDA's fat binaries. Little
is read, and it has not changed in decades: headers, the dynamic section, symbol tables, versions.
The tests compare the results with `readelf`, `cuobjdump`, pyelftools, pefile and the loader itself.

A truncated, damaged or malicious file gives a result with the reason in `damaged`, never an
exception and never an endless loop.
"""
