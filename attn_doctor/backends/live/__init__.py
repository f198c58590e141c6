"""Running the backends, each in a process of its own, and holding the numbers against float64."""
