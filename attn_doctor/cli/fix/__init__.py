"""`attn-doctor fix` and what it does on the way."""
