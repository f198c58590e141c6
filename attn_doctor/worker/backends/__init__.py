"""Programs that run in the examined interpreter: the standard library and torch, Python 3.9+."""
