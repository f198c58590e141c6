"""Compiles FlexAttention kernels ahead of time, verifies them, and records them in a manifest.

A kernel spec has eight forms on its way from the command line to the report:

1. command line: options, or a table of a TOML file, or a preset;
2. `SpecArgs` (`spec_requests.py`): the options as they were written;
3. `KernelSpec` (`record/spec.py`): everything that decides which kernel serves one call;
4. `PlannedBuild` (`plan.py`): a spec on one device, with what has to be done about it;
5. `KernelTask` (`scheduler.py`): a process that builds or verifies it, with its job as JSON;
6. `Outcome` (`pool/task.py`): how the process ended, and what it answered;
7. `Entry` (`record/manifest.py`): what the manifest records;
8. `Report` (`report.py`): one row for each kernel, as text or JSON.

`session.py` does one build: it acts on what the scheduler yields. `attn_doctor.worker` runs in the
examined interpreter and knows nothing of this package. `warmup.py` runs a user's own program
instead of specs.
"""
