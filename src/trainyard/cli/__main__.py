"""Run the command line with `python -m trainyard.cli`."""

from trainyard.cli.main import main

main()
