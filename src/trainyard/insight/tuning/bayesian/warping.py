"""Bending a numeric axis onto itself by the distribution function of Kumaraswamy, so that a model that takes all of an
axis for equally restless fits one whose low or high end is livelier.

Both exponents are given as logarithms; at zero the axis is as it was.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_EDGE = 1e-9  # the derivatives are not finite at the very ends


def bend(units: Array, first: Array, second: Array) -> Array:
    """Where the coordinates of the unit interval come to lie, each column by its own exponents."""
    raised = _inside(units) ** np.exp(first)
    return 1.0 - (1.0 - raised) ** np.exp(second)


def unbend(units: Array, first: Array, second: Array) -> Array:
    """Which coordinates come to lie there: the reverse of `bend`."""
    raised = 1.0 - (1.0 - _inside(units)) ** np.exp(-second)
    return raised ** np.exp(-first)


def slope(units: Array, first: Array, second: Array) -> Array:
    """The derivative of `bend` by the coordinate."""
    inside, a, b = _inside(units), np.exp(first), np.exp(second)
    return a * b * inside ** (a - 1.0) * (1.0 - inside**a) ** (b - 1.0)


def responses(units: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """The derivatives of `bend` by the logarithm of each exponent."""
    inside, a, b = _inside(units), np.exp(first), np.exp(second)
    raised = inside**a
    rest = 1.0 - raised
    by_first = b * rest ** (b - 1.0) * raised * a * np.log(inside)
    by_second = -(rest**b) * b * np.log(rest)
    return by_first, by_second


def _inside(units: Array) -> Array:
    return np.clip(units, _EDGE, 1.0 - _EDGE)
