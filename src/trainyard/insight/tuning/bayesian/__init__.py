"""Bayesian optimisation: a Gaussian process models the objective, and an acquisition function picks the next trial."""

from trainyard.insight.tuning.bayesian.strategy import BayesianStrategy

__all__ = ["BayesianStrategy"]
