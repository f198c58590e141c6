"""The probes: each reads one part of the machine through a `Host` and returns facts.

A probe is a function `read(host, site, gaps)` that returns the fields of `Facts` it is
responsible for. It never prints, judges or raises on a strange machine: what it cannot read
it leaves as None and explains with `gaps.add(name, reason)`. `registry.py` lists them.
"""
