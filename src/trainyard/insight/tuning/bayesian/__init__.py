"""Bayesian optimisation: a Gaussian process learns the objective, and what promises most is tried next."""

from trainyard.insight.tuning.bayesian.strategy import BayesianStrategy

__all__ = ["BayesianStrategy"]
