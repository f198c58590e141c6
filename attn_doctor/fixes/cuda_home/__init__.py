"""Chooses the CUDA toolkit for a build, and makes it known to the user's shell.

`evaluate` compares all toolkits, `exports` works out the variables, `confirm` asks torch and
NVIDIA's tools what they resolve then, `start_files` writes the lines for later shells, `advice` and
`toolkit_from_wheels` are for machines without a toolkit that fits.
"""
