"""The rulebook: the form of rules, reading them, and their evaluation on facts.

A rule is data (`rules/<area>/<name>.toml`); `rules/README.md` shows how to write one.
"""
