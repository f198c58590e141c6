"""Becomes a process that its parent cannot reap, as one stuck in the kernel cannot be.

A traced process that is killed stays until its tracer lets go of it. So a helper in a session of
its own traces this one, for as many seconds as the first argument says; no privilege is needed.
Ends with code 77 where tracing is not allowed.
"""

import ctypes
import os
import sys
import time

PTRACE_SEIZE = 0x4206
PR_SET_PTRACER = 0x59616D61

libc = ctypes.CDLL(None, use_errno=True)
target = os.getpid()
ready, tell = os.pipe()
# Where the Yama module guards ptrace, a child may trace its parent only with consent.
libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
if os.fork() == 0:
    os.setsid()
    refused = libc.ptrace(PTRACE_SEIZE, target, None, None)
    os.write(tell, b"n" if refused else b"y")
    time.sleep(float(sys.argv[1]))
    os._exit(0)
if os.read(ready, 1) != b"y":
    sys.exit(77)
time.sleep(60)
