"""Samples the hardware of an instance while its program runs. Standard library only, except for NVIDIA's binding."""
