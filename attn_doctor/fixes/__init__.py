"""Plans fixes, applies them, keeps a journal of each run, and undoes runs."""
