"""Operators in one process log in at the same time, each in a thread of its own."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable

import pytest
from kubernetes.config import kube_config

import kopf
from kopf_cluster import LocalCluster
from tests.patience import PATIENCE

THREADS = 6
ROUNDS = 20


def test_the_official_client_is_used_by_one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library tells of its files with certificates before it has written them."""
    barrier = threading.Barrier(THREADS)
    clean_up: Callable[[], None] = kube_config._cleanup_temp_files

    def login() -> None:
        barrier.wait(PATIENCE)
        info = kopf.login_via_client()
        assert info is not None
        info.as_ssl_context()

    with LocalCluster() as cluster, concurrent.futures.ThreadPoolExecutor(THREADS) as executor:
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        for _ in range(ROUNDS):
            clean_up()
            for future in [executor.submit(login) for _ in range(THREADS)]:
                future.result()
