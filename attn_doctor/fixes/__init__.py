"""Remedies: how a fix is written for a shell, and later how it is carried out."""
