"""Runs one program in its own sandbox: `launcher.launch` starts it; `contract.py` states the guarantees."""
