"""Tuning jobs on the client side: requests, handles, progress and charts."""
