"""A build of kernels: its progress, its result, its targets."""
