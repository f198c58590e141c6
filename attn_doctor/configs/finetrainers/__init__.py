"""Command lines of Finetrainers."""
