"""How far a study's good places lie from those of a relative, and the relative's trials as if they lay there too.

Other data often want the same thing a little elsewhere: a lower rate, a larger network. Each numeric axis of the
relative is taken to be that of the study, bent onto itself with its ends where they were (see `warping`). One number
says how far, the lean: the logarithm of the one exponent, and the negative of that of the other, so that what is in the
middle moves and the low and the high half are treated alike. The leans are those under which the study's trials are
likeliest for a process that was fitted to the relative. A lean is believed to be small, so that a few trials say
nothing of an axis along which they do not differ.

Of such an axis the study has to find out, and it does not try what it takes for known. So beside the likeliest leans
there are others that are possible: drawn from the normal distribution that is as steep as the likelihood is there.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from trainyard.insight.tuning.bayesian import warping
from trainyard.insight.tuning.bayesian.evidence import Evidence
from trainyard.insight.tuning.bayesian.gp import LEAST_NOISE, Hyperparameters, inverse_root
from trainyard.insight.tuning.bayesian.kernels import Array, Geometry, likeness, pull
from trainyard.insight.tuning.bayesian.levels import beside

_DEVIATION = 0.15  # of a lean, which moves the middle of an axis by a tenth of it
_FARTHEST = 4.0 * _DEVIATION
_STRANGENESS = -3.0  # the logarithm of how little else the study and its relative have in common
_STRANGENESS_DEVIATION = 1.5
_STRANGENESS_BOUNDS = (-8.0, 1.0)
_STEPS = 40
_DRAWS = 4  # of leans, each of which has its opposite as well
_STEP = 1e-4  # of a lean, by which gradients are compared


class Straightened(NamedTuple):
    """Rows with those of relatives where they would lie in a study: most likely, and possibly."""

    rows: Array
    otherwise: tuple[Array, ...]


def straightened(
    evidence: Evidence,
    targets: Array,
    geometry: Geometry,
    *,
    hyperparameters: Hyperparameters,
    most: int,
    generator: np.random.Generator,
) -> Straightened:
    """The rows of the evidence, of which some are the study's own, those of each relative where they would lie in it.

    `targets` are those of the relatives, `hyperparameters` are fitted to them. Of each relative at most so many rows
    are looked at.
    """
    if not len(geometry.numeric):
        return Straightened(evidence.rows, ())
    places = [evidence.rows.copy() for _ in range(1 + 2 * _DRAWS)]
    for source in np.unique(evidence.sources[~evidence.own]):
        theirs = np.flatnonzero(evidence.sources == source)
        few = np.concatenate([np.flatnonzero(evidence.own), evenly(theirs, most)])
        kin = _Kin(evidence.only(few), targets[few], geometry, hyperparameters)
        at = np.ix_(theirs, geometry.numeric)
        for rows, lean in zip(places, kin.leans(generator), strict=True):
            rows[at] = warping.unbend(rows[at], lean, -lean)
    return Straightened(places[0], tuple(places[1:]))


def evenly(indices: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """At most so many of the indices."""
    return indices[np.linspace(0, len(indices) - 1, min(len(indices), most)).round().astype(np.intp)]


class _Kin:
    """A study and one relative."""

    def __init__(self, evidence: Evidence, targets: Array, geometry: Geometry, found: Hyperparameters) -> None:
        self._evidence = evidence
        self._targets = targets
        self._geometry = geometry
        self._bends = found.bends
        self._scale = float(np.exp(found.scale))
        self._noises = np.exp(found.noise) + LEAST_NOISE + evidence.doubts
        self._own = evidence.rows[evidence.own][:, geometry.numeric]
        self._are_apart = (evidence.sources[:, None] != evidence.sources[None, :]).astype(np.float64)

    def leans(self, generator: np.random.Generator) -> list[Array]:
        """The likeliest leans, and then some that are possible."""
        found = self._likeliest()
        values, vectors = np.linalg.eigh(_DEVIATION**2 * self._steepness(found))
        root = _DEVIATION * vectors / np.sqrt(np.maximum(values, 1.0))
        away = generator.standard_normal((_DRAWS, len(values))) @ root.T
        drawn = np.clip(found[:-1] + np.concatenate([away, -away]), -_FARTHEST, _FARTHEST)
        return [found[:-1], *drawn]

    def _likeliest(self) -> Array:
        axes = len(self._geometry.numeric)
        found = minimize(
            self.unlikeliness_and_gradient,
            np.append(np.zeros(axes), _STRANGENESS),
            jac=True,
            bounds=[(-_FARTHEST, _FARTHEST)] * axes + [_STRANGENESS_BOUNDS],
            method="L-BFGS-B",
            options={"maxiter": _STEPS},
        )
        return np.asarray(found.x)

    def _steepness(self, vector: Array) -> Array:
        """How the gradient by the leans changes along each of them."""
        _, gradient = self.unlikeliness_and_gradient(vector)
        steps = _STEP * np.eye(len(vector))[:-1]
        changes = [self.unlikeliness_and_gradient(vector + step)[1] - gradient for step in steps]
        found = np.array(changes)[:, :-1] / _STEP
        return np.asarray(0.5 * (found + found.T))

    def unlikeliness_and_gradient(self, vector: Array) -> tuple[float, Array]:
        """Of the leans and, as the last number, of the logarithm of the strangeness."""
        lean, strangeness = vector[:-1], float(np.exp(vector[-1]))
        columns = self._columns(lean)
        embedded = self._geometry.embed(columns, self._bends)
        correlations, slopes = likeness(embedded, embedded, geometry=self._geometry)
        scales = self._scale * np.exp(-strangeness * self._are_apart)
        root = inverse_root(scales * correlations + 1.0, self._noises)
        targets = self._targets.copy()
        targets[self._evidence.own], unlikeliness = beside(self._evidence, self._targets, root=root)
        solved = root.T @ (root @ targets)
        by_correlation = 0.5 * (root.T @ root - np.outer(solved, solved)) * scales
        by_lean = self._by_lean(by_correlation * slopes, columns, embedded, lean)
        by_strangeness = -strangeness * float(np.sum(by_correlation * correlations * self._are_apart))
        away = vector - np.append(np.zeros(len(lean)), _STRANGENESS)
        away[:-1] /= _DEVIATION
        away[-1] /= _STRANGENESS_DEVIATION
        value = unlikeliness - float(np.sum(np.log(np.diag(root)))) + 0.5 * float(away @ away)
        gradient = np.append(by_lean + away[:-1] / _DEVIATION, by_strangeness + away[-1] / _STRANGENESS_DEVIATION)
        return value, gradient

    def _columns(self, lean: Array) -> Array:
        """All rows as the relative would have them."""
        rows = self._evidence.rows.copy()
        rows[np.ix_(self._evidence.own, self._geometry.numeric)] = warping.bend(self._own, lean, -lean)
        return self._geometry.columns(rows)

    def _by_lean(self, force: Array, columns: Array, embedded: Array, lean: Array) -> Array:
        at = self._geometry.numeric_columns
        along = np.zeros_like(embedded)
        along[:, at] = 2.0 * pull(force, embedded[:, at], embedded[:, at])
        by_axis = self._geometry.to_axes(along, columns, bends=self._bends)[self._evidence.own]
        by_first, by_second = warping.responses(self._own, lean, -lean)
        return np.asarray(np.sum(by_axis[:, self._geometry.numeric] * (by_first - by_second), axis=0))
