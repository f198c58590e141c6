"""Installations as text and JSON."""
