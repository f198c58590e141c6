"""attn-doctor: which attention kernels work on this machine, why the others do not, and the fix."""

__version__ = "0.1.0"
