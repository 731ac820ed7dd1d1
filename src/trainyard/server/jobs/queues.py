"""How the records name the queue that a job of any kind waits in."""


def queue_name(engine: str, *, site: str) -> str:
    """Return the name of the queue of the jobs that are for an engine of a yard."""
    return f"{site}/{engine}"
