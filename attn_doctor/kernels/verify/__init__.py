"""Running what was built: is it reused, are its numbers right, and if not, why."""
