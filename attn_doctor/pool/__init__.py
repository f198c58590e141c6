"""Worker processes of the examined interpreter, and the tasks that they run."""
