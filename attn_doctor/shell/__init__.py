"""Commands and variables for a person's shell: quoting, detection, lines to copy."""
