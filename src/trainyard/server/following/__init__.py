"""Those who follow training jobs: told of statuses, notes and log lines as they come."""

from trainyard.server.following.followers import Followers
from trainyard.server.following.place import Place

__all__ = ["Followers", "Place"]
