"""Compiles FlexAttention kernels ahead of time, verifies them, and records them.

What to compile is a `KernelSpec` (`record/spec.py`). `spec_requests.py` and `presets.py` make specs
of flags, files and model families. `attn_doctor.worker` runs in the examined interpreter and knows
nothing of this package, which hands it jobs and keeps the manifest beside the caches.
"""
