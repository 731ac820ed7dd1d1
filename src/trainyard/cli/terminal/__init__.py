"""Output of the command line: the console, errors and exit codes, charts, and the full screen."""
