"""The rulebook: what a rule is, how it is read, and how it judges facts.

A rule is data (`rules/<area>/<name>.toml`); `rules/README.md` shows how to write one.
"""
