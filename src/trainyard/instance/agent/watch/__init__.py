"""Watches the program of an instance while it runs: output, metrics, rules, hangs, disk and commands of the yard."""
