"""Remedies: how a fix is written for a shell, planned, carried out, journalled and taken back."""
