"""Helpers for rules and notebooks."""
