"""Renderers: a diagnosis as text for people, JSON for programs, Markdown for issues.

Each is a function from a `Diagnosis` to a string. They decide nothing: the exit code
is known before and is the same in every format.
"""
