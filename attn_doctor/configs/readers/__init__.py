"""Reads each kind of configuration into settings with their lines."""
