"""Reads each kind of configuration into settings with the lines they stand on."""
