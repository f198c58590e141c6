"""Mounts a FUSE file system that never answers, at the directory in the first argument.

A process that opens a file below it sleeps in the kernel, state D. SIGKILL does not wake it: the
same state as behind a hung GPU driver or a dead NFS server. When this program ends, the kernel
gives up on the file system and the sleepers wake. Prints a line once it is mounted, or the reason
why it cannot be.
"""

import ctypes
import os
import signal
import struct
import sys

PR_SET_PDEATHSIG = 1
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
FUSE_INIT = 26
HEADER = struct.Struct("=IIQQIIII")  # of a request: length, opcode, unique, …

libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
where = sys.argv[1].encode()
try:
    device = os.open("/dev/fuse", os.O_RDWR)
except OSError as error:
    print(f"/dev/fuse: {error.strerror}")
    sys.exit()
options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}".encode()
if libc.mount(b"silent", where, b"fuse", MS_NOSUID_NODEV_NOEXEC, options):
    print(f"mount: {os.strerror(ctypes.get_errno())}")
    sys.exit()
while True:
    request = os.read(device, 1 << 17)
    _, opcode, unique, *_ = HEADER.unpack_from(request)
    if opcode == FUSE_INIT:
        # Protocol 7.31, nothing optional: the least that the kernel accepts.
        answer = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0)
        os.write(device, struct.pack("=IiQ", 16 + len(answer), 0, unique) + answer)
        print("mounted", flush=True)
