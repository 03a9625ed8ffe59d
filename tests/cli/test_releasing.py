"""``kopf release``: what is held by an operator that does not exist anymore, is let go."""

from __future__ import annotations

import functools
import os
import subprocess
import urllib.error
from collections.abc import Callable

import pytest

from kopf_cluster import LocalCluster
from tests.cli.api import request
from tests.forging import Forge

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
THEIRS = "example.com/theirs"
PATH = "/apis/kopf.dev/v1/namespaces/{}/kopfexamples/{}"


def get_finalizers(cluster: LocalCluster, name: str, namespace: str = "default") -> list[str] | None:
    """Those of the object; ``None`` if there is no object."""
    try:
        obj = request(cluster, "GET", PATH.format(namespace, name))
    except urllib.error.HTTPError as e:
        with e:
            if e.code != 404:
                raise
            return None
    return list(obj["metadata"].get("finalizers", []))


Release = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def release(cluster: LocalCluster, forge: Forge) -> Release:
    return functools.partial(forge.run, "release", env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)})


@pytest.fixture
def cluster(cluster: LocalCluster) -> LocalCluster:
    """The same cluster, with objects in all states."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
    for name, namespace, finalizers in [
        ("alive", "default", [THEIRS, FINALIZER]),
        ("dying", "default", [FINALIZER]),
        ("free", "default", [THEIRS]),
        ("alive", "other", [FINALIZER]),
        ("custom", "default", ["example.com/ours"]),
    ]:
        cluster.apply(
            {
                "apiVersion": "kopf.dev/v1",
                "kind": "KopfExample",
                "metadata": {"name": name, "namespace": namespace, "finalizers": finalizers},
                "spec": {"duration": "1m"},
            }
        )
    request(cluster, "DELETE", PATH.format("default", "dying"))
    return cluster


def test_everything_in_the_cluster(cluster: LocalCluster, release: Release) -> None:
    result = release("kopfexamples.kopf.dev", "--all-namespaces")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        "3 objects are released.",
        "kopfexamples.kopf.dev default/alive",
        "kopfexamples.kopf.dev default/dying",
        "kopfexamples.kopf.dev other/alive",
    ]
    assert get_finalizers(cluster, "alive") == [THEIRS]
    assert get_finalizers(cluster, "alive", "other") == []
    assert get_finalizers(cluster, "dying") is None
    assert get_finalizers(cluster, "free") == [THEIRS]
    assert get_finalizers(cluster, "custom") == ["example.com/ours"]


def test_only_what_is_asked_for(cluster: LocalCluster, release: Release) -> None:
    result = release("kex", "--namespace", "default", "--deleted")
    assert result.stdout.splitlines() == ["kopfexamples.kopf.dev default/dying", "1 object is released."]
    assert get_finalizers(cluster, "alive") == [THEIRS, FINALIZER]
    result = release("kopfexamples", "--all-namespaces", "--finalizer", "example.com/ours")
    assert result.stdout.splitlines() == ["kopfexamples.kopf.dev default/custom", "1 object is released."]
    assert get_finalizers(cluster, "custom") == []


def test_dry_runs_change_nothing(cluster: LocalCluster, release: Release) -> None:
    result = release("kopfexamples", "-A", "--dry-run")
    assert result.stdout.splitlines()[-1] == "3 objects would be released."
    assert get_finalizers(cluster, "alive") == [THEIRS, FINALIZER]
    assert get_finalizers(cluster, "dying") == [FINALIZER]


def test_mistakes(cluster: LocalCluster, release: Release) -> None:
    result = release("kopfexamples")
    assert "Name the namespaces with --namespace, or use --all-namespaces." in result.stderr
    result = release("nothings", "-A")
    assert "Cannot choose the resource 'nothings' in the cluster: there is none." in result.stderr
    assert result.returncode != 0


@pytest.mark.parametrize("verb", ["list", "patch"])
def test_missing_permissions_are_named(verb: str, cluster: LocalCluster, release: Release) -> None:
    cluster.faults.inject(403, verb=verb, resource="kopfexamples")
    result = release("kopfexamples", "--all-namespaces")
    assert result.returncode == 1
    rule = f"- {{apiGroups: [kopf.dev], resources: [kopfexamples], verbs: [{verb}]}}"
    assert f"You need this rule: {rule}" in result.stderr


def test_conflicts_are_got_over(cluster: LocalCluster, release: Release) -> None:
    cluster.faults.inject(409, method="PATCH", times=3)
    result = release("kopfexamples", "-A")
    assert result.returncode == 0, result.stderr
    assert get_finalizers(cluster, "alive") == [THEIRS]


def test_refused_credentials_are_told_at_once(cluster: LocalCluster, release: Release) -> None:
    path = cluster.kubeconfig
    path.write_text(path.read_text().replace(cluster.token, "stale"))
    result = release("kopfexamples.kopf.dev", "--all-namespaces")
    assert result.returncode == 1
    assert "Ran out of valid credentials" in result.stderr
    assert "401 Unauthorized" in result.stderr
