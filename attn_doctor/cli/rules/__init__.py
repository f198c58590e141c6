"""`attn-doctor rules` and its commands."""
