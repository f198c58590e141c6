"""Text for the user's shell: quoting, detection, lines that set variables, commands to copy."""
