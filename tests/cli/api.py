"""Requests to the cluster, apart from those by the processes under test."""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import Any

from kopf.testing import LocalCluster


def request(cluster: LocalCluster, method: str, path: str, payload: Any = None) -> Any:
    """Make one request with JSON; raises :class:`urllib.error.HTTPError`."""
    call = urllib.request.Request(
        cluster.url + path,
        method=method,
        data=None if payload is None else json.dumps(payload).encode(),
        headers={"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"},
    )
    context = ssl.create_default_context(cadata=cluster.ca_data.decode())
    with urllib.request.urlopen(call, context=context) as response:
        return json.load(response)
