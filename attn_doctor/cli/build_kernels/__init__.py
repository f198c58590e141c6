"""`attn-doctor build-kernels` and `describe-gpu`."""
