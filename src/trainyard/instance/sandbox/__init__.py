"""Runs one program in a box of its own: `launcher.launch` starts it, `contract.py` says what it promises."""
