"""Servers that keep the parameters of a model and step with the gradients of workers.

`trainyard.parameter_server` is the public name of it.
"""
