"""
Pages for people in the place of answers: of proxies and portals on the way, e.g. where one has to log in first.

Those with the status of an error are shown by the errors. Those that pretend to be a success are recognised here.
"""

from __future__ import annotations

from kopf._client.errors import shorten
from kopf._client.http.transport import Response


def is_page(response: Response) -> bool:
    """Tell if it is a page with the status of a success: API servers have none."""
    return response.status < 300 and response.headers.get("Content-Type", "").lower().startswith("text/html")


def describe_page(body: bytes) -> str:
    """Say what has come."""
    return f"The answer is not of Kubernetes, but a page for people (text/html): {shorten(body)}"
