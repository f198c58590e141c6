"""GPUs that this machine does not have: what is known of them, and building for them."""
