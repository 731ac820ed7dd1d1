"""Unsupported: hooks here do not write smdebug's files."""

from ..unsupported import unsupported_names

__getattr__ = unsupported_names(__name__, "FileWriter")
