"""Servers that hold the parameters of a model and apply the gradients of workers.

`trainyard.parameter_server` is the public module.
"""
