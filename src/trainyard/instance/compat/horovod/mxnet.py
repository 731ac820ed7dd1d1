"""Unsupported: only PyTorch is."""

from . import missing_framework

raise missing_framework("mxnet")
