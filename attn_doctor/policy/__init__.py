"""What a team demands of its machines, beyond what is healthy: written once, beside its code.

`policy.py` reads it, `judging.py` holds a diagnosis against it, `baseline.py` tells new problems
from those that were there.
"""
