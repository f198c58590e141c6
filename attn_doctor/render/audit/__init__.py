"""The results of an audit, in words."""
