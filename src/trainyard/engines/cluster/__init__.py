"""Instances on the nodes of a cluster."""
