"""
The keys and certificates of local clusters, made once for all clusters of the tests: they are half of a start.

The tokens are still different. Those who need clusters that do not trust each other, do without this.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
import ssl

import pytest

from kopf_cluster.access import credentials
from kopf_cluster.access.credentials import Credentials

_make_once = functools.cache(credentials.make_credentials)


def _make_credentials(host: str) -> Credentials:
    return dataclasses.replace(_make_once(host), token=secrets.token_urlsafe(24))


@pytest.fixture
def shared_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clusters of this test have the same keys and certificates as those of others."""
    monkeypatch.setattr("kopf_cluster.cluster.make_credentials", _make_credentials)


@functools.lru_cache(maxsize=1)
def trust(authority: bytes) -> ssl.SSLContext:
    """Give the client's side of TLS to the cluster with this certificate of the authority."""
    return ssl.create_default_context(cadata=authority.decode())
