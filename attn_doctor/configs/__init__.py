"""Reads a training configuration and predicts which attention backend will really run.

Nothing of the user's is executed: JSON, TOML and shell words are parsed, Python is read as a tree.
"""
