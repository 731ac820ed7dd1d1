"""Prepares, runs, watches and reports one instance: `python -m trainyard.instance.agent.main <instance folder>`."""
