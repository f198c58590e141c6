"""The probes: each reads one part of the machine through a `Host` and returns facts.

A probe is a function `read(host, site, gaps)` that returns the fields of `Facts` it is
responsible for. It never prints, evaluates or raises on an unusual machine: a fact that it
cannot read stays None, with a reason in `gaps.add(name, reason)`. `registry.py` lists all probes.
"""
