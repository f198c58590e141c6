"""A plan of fixes, and the CUDA toolkit that fits."""
