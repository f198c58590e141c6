"""`attn-doctor backends`."""
