"""`attn-doctor cache` and its commands."""
