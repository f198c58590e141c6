"""Programs that run in the examined interpreter: the standard library, torch, and one another.

attn-doctor and its dependencies are not installed there, and Python may be as old as 3.9. A file
that is started by its path puts this package in reach itself; see `server.py`.
"""
