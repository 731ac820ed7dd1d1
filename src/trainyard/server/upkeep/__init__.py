"""Maintenance of a home folder: backup and restore, garbage collection, consistency checks."""
