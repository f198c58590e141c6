"""FlexAttention kernels compiled ahead of time, proven, and written down.

What to compile is a `KernelSpec` (`spec.py`); who asks for it, flags, a file, a preset, is in
`spec_requests.py` and `presets.py`. `attn_doctor.worker` runs in the examined interpreter and knows nothing of this
package; the rest hands it work, watches over it, and keeps the manifest beside the caches.
"""
