"""Write files in one step. The code is in `worker.files`, because workers need it too."""

from attn_doctor.worker.files import make_folders, replacing, sync, write_atomic

__all__ = ["make_folders", "replacing", "sync", "write_atomic"]
