"""What is in caches, what became of it, and why it is not used."""
