"""Running the backends, each in a process of its own, and comparing the numbers with float64."""
