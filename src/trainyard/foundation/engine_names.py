"""The names of engines, and the tags with which users choose one."""

LOCAL = "local"
RAY = "ray"
CONTAINER = "container"

# A tag of a job whose value is the name of its engine.
ENGINE_TAG = "trainyard:engine"
# A tag of a job whose value is STRICT if each instance needs a node of its own.
SPREAD_TAG = "trainyard:spread"
STRICT = "strict"
