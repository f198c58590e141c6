"""Write files in one step. The code is in `worker.files`, because workers need it too."""

from attn_doctor.worker.files import replacing, sync, write_atomic

__all__ = ["replacing", "sync", "write_atomic"]
