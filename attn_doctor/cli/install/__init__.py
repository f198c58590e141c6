"""`attn-doctor install`."""
