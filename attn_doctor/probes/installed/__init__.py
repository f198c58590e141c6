"""What is installed in the examined environment: torch, Triton, kernels, frameworks, libraries."""
