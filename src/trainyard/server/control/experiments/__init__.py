"""Keeps trial components up to date: with the metrics that clients put, and with the jobs that they came from."""
