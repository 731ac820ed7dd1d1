"""Shipped with the package: contract suites that every back end must pass, and a yard for tests."""
