"""Shipped with the package: contract suites that every back end must pass, and fixtures to run a yard in tests."""
