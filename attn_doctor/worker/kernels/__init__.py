"""Builds and checks one kernel in the examined interpreter."""
