"""Renderers: a diagnosis as text for people, JSON for programs, Markdown for issues.

Each is a function from a `Diagnosis` to a string. None of them decides anything: the exit code
is settled before they run and is the same in every format.
"""
