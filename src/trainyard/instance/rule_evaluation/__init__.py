"""Evaluates the rules of a training: those on one worker's statistics in its process, all others in a separate one.

In the process that trains, hook_attachment.py attaches the hook and rule_subscriber.py connects rules and the flight
recorder to it. In the separate process, start.py chooses a suitable Python and main.py follows the tensors of all
instances, joined by folders.py, and evaluates each step. custom.py runs rules from a user's own file.

Both read the job's rules with rules_config.py, and report to the agent with event_client.py.
"""
