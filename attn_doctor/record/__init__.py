"""The record of what was built: specs, the manifest, its lock, and drift from today's machine."""
