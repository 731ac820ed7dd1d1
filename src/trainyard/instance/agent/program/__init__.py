"""The program of an instance: its code, environment and installation, and its start in a sandbox or a container."""
