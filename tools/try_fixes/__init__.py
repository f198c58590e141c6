"""Tries each fix of each rule on machines that the rule applies to; see `__main__`."""
