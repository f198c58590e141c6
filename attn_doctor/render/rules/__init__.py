"""Rules as pages."""
