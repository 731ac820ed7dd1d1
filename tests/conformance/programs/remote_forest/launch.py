"""Fit a scikit-learn model in a remote function, and use it here."""

import sys
from pathlib import Path

import numpy as np
from sagemaker.core.remote_function import remote
from sklearn.ensemble import RandomForestClassifier

data, image = Path(sys.argv[1]), sys.argv[2]


@remote(instance_type="ml.m5.xlarge", image_uri=image, keep_alive_period_in_seconds=60)
def fit(features: np.ndarray, labels: np.ndarray, trees: int = 10) -> RandomForestClassifier:
    print(f"fitting {trees} trees to {len(features)} images")
    return RandomForestClassifier(trees, random_state=0).fit(features, labels)


train, test = (np.loadtxt(data / name / "digits.csv", delimiter=",") for name in ("train", "test"))
model = fit(train[:, :-1], train[:, -1], trees=50)
assert model.score(test[:, :-1], test[:, -1]) > 0.9
