"""An import path of smdebug."""

from trainyard._sdk.profiling.frame_analysis import PT_dataloader_analysis

__all__ = ["PT_dataloader_analysis"]
