"""The findings of a check, for people and for programs."""
