"""Layers, which the tool of this machine keeps with its images."""

import re

from trainyard.server.services.contract import Call, Operations, Shape
from trainyard.server.services.ecr.contents import images_in
from trainyard.server.services.ecr.repositories import load_repository

_DIGEST = re.compile(r"[a-zA-Z0-9\-_+.]+:[a-fA-F0-9]+")


def batch_check_layer_availability(call: Call, shape: Shape) -> Shape:
    """Knows layers by the digests of what they hold unpacked, which is what the tools of one machine have."""
    images = images_in(load_repository(call, shape), call.yard.workshop)
    known = {layer for image in images if image.local for layer in image.local.layers}
    asked = shape["layerDigests"]
    return {
        "layers": [_layer(digest, is_here=digest in known) for digest in asked if _DIGEST.fullmatch(digest)],
        "failures": [_failure(digest) for digest in asked if not _DIGEST.fullmatch(digest)],
    }


OPERATIONS: Operations = {"BatchCheckLayerAvailability": batch_check_layer_availability}


def _layer(digest: str, *, is_here: bool) -> Shape:
    return {"layerDigest": digest, "layerAvailability": "AVAILABLE" if is_here else "UNAVAILABLE"}


def _failure(digest: str) -> Shape:
    reason = f"Invalid layer digest '{digest}'"
    return {"layerDigest": digest, "failureCode": "InvalidLayerDigest", "failureReason": reason}
