"""`attn-doctor audit`."""
