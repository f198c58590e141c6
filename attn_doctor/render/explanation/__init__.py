"""The cause of a failure that was found in a log."""
