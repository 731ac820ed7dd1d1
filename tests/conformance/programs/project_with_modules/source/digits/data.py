import numpy as np
import torch


def load(path):
    table = np.loadtxt(path, delimiter=",", dtype=np.float32)
    return torch.from_numpy(table[:, :-1] / 16), torch.from_numpy(table[:, -1]).long()
