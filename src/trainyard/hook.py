"""Captures the tensors of a training, in a job or outside of one.

    import trainyard.hook as th

    hook = th.Hook("/tmp/tensors", collections=["weights", "gradients"])
    hook.watch(model)

From then on every step of the training leaves statistics of its tensors in the folder, and their values where a
collection asks for them: `trainyard.trial.create_trial` reads them, while the training runs and after it. Nothing of
torch is imported before a hook is made. In a job, a hook is attached without any of this when the job asks for it.
"""

from trainyard.formats.tensors.contract import Mode
from trainyard.instance.hook.by_hand import Hook

__all__ = ["Hook", "Mode"]
