"""`python -m trainyard.cli` is `trainyard`."""

from trainyard.cli.main import main

main()
