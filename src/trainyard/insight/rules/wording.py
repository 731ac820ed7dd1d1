"""Parts of the sentences in which rules tell what they found."""

import numpy as np

from trainyard.insight.rules.readings import Flags


def for_long(patience: int) -> str:
    """For how long something was so; nothing where one step is enough."""
    return f" for {patience} steps" if patience > 1 else ""


def others(hits: Flags) -> str:
    """The end of a sentence about one of the tensors that are hit: how many others there are."""
    count = int(np.count_nonzero(hits)) - 1
    return f"; {count} {'others are' if count > 1 else 'other is'} as bad" if count > 0 else ""
