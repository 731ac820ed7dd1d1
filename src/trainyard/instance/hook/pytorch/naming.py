"""What tensors of a model are called: as smdebug calls them, whatever the model is wrapped in."""

from torch import nn

# Wrappers by the name of their class, so that none has to be imported, and the child that is wrapped.
_WRAPPED = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "DeepSpeedEngine": "module",
}
_INSERTED = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def chain(module: nn.Module) -> list[nn.Module]:
    """A module and what it wraps, down to the model itself."""
    found = [module]
    while (inner := found[-1]._modules.get(_WRAPPED.get(type(found[-1]).__name__, ""))) is not None:
        found.append(inner)
    return found


def class_name(module: nn.Module) -> str:
    """The name of a model's class; of one that fully_shard changed, that of the class it was before."""
    lineage = type(module).__mro__
    if len(lineage) > 2 and lineage[1].__name__ == "FSDPModule":
        return lineage[2].__name__
    return str(getattr(module, "original_name", type(module).__name__))  # that of a scripted module


def path(name: str) -> str:
    """A path in a model without what wrappers of single layers insert."""
    for inserted in _INSERTED:
        name = name.replace(inserted, "").removesuffix(inserted.rstrip("."))
    return name.removesuffix(".")
