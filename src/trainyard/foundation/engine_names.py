"""The words by which users know engines and ask for one."""

LOCAL = "local"
RAY = "ray"
CONTAINER = "container"

ENGINE_TAG = "trainyard:engine"  # of a job; its value is the name of the engine that shall run it
SPREAD_TAG = "trainyard:spread"  # of a job; its value is STRICT where each instance shall have a node of its own
STRICT = "strict"
