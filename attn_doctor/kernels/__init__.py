"""FlexAttention kernels compiled ahead of time: GPUs, caches, building, verifying, bundling."""
