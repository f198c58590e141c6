"""The matrix of backends, and what running them showed."""
