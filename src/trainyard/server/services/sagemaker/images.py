"""Images that really run: whose they are, and that they are there."""

from trainyard.engines.images import Reference
from trainyard.foundation.errors import InvalidRequest
from trainyard.server.services.contract import Workshop


def require_image(workshop: Workshop, image: str, *, account: str) -> None:
    """Refuse a container image that is not on this machine, or that lies in the registry of another account.

    What was mapped is for all accounts. No job pulls an image, so one that is not there now would only fail later.
    """
    container, owner = workshop.images.container_of(image), Reference.parse(image).account
    if not container:
        return
    if container == image and owner not in ("", account):
        raise InvalidRequest(
            f'The image "{image}" lies in the registry of another account; who runs this yard can let all use it with '
            f"`trainyard images map {Reference.parse(image)} --container LOCAL_IMAGE`."
        )
    if workshop.containers is not None:
        workshop.containers.full_name(container)
