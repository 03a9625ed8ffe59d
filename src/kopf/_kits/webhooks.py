"""A private module of the original framework; see the room ``_legacy``."""

from kopf._legacy.modules import pretend

pretend(__name__)
