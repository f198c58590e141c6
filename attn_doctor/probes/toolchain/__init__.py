"""CUDA toolkits, compilers and build tools."""
