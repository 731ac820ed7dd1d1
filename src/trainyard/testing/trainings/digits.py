"""Handwritten digits, 1797 pictures of eight by eight pixels, as scikit-learn brings them."""

import torch
from sklearn.datasets import load_digits

from trainyard.testing.trainings.samples import Samples


def images() -> Samples:
    """Pictures of one channel with the mean 0 and the deviation 1, and which digit each shows."""
    pictures, labels = _load()
    return Samples(((pictures - pictures.mean()) / pictures.std()).reshape(-1, 1, 8, 8), labels)


def vectors() -> Samples:
    """The pixels of each picture in a row, from 0 to 1, and which digit it shows."""
    pictures, labels = _load()
    return Samples(pictures / 16, labels)


def _load() -> tuple[torch.Tensor, torch.Tensor]:
    pictures, labels = load_digits(return_X_y=True)
    return torch.tensor(pictures, dtype=torch.float32), torch.tensor(labels)
