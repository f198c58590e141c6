"""Explaining a failure from its log: `reading` → `page` → `matching` → `course` → `ranking`.

`engine.explain` is the whole way. Nothing here prints, and nothing here looks at the machine: facts
about it are handed in.
"""
