"""Service accounts: an operator that runs in a pod, with the files that the kubelet mounts there and renews."""

from __future__ import annotations

import asyncio
import os
import pathlib
from collections.abc import AsyncIterator

import pytest
import yarl

import kopf
from kopf._client.auth import service_account
from kopf_cluster import LocalCluster
from tests.behaviour.conftest import make_crd
from tests.behaviour.objects import Objects
from tests.behaviour.running import Calls, Logs, Operator

pytestmark = pytest.mark.usefixtures("by_network")


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    """A cluster where only what is granted is permitted."""
    async with LocalCluster(authorization="rbac") as cluster:
        cluster.apply(make_crd("KopfExample", "kopfexamples", status=False))
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"namespace": "default", "name": "operator"},
            }
        )
        yield cluster


class Pod:
    """The files of a service account, as they are in a pod."""

    def __init__(self, cluster: LocalCluster, folder: pathlib.Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self.write("ca.crt", cluster.ca_data)
        self.write("namespace", b"default")
        self.renew()

    def write(self, name: str, content: bytes) -> None:
        """Replace the file at once, as the kubelet does."""
        path = self._folder / f"{name}.new"
        path.write_bytes(content)
        os.replace(path, self._folder / name)

    def renew(self, *, lifetime: float = 3600) -> None:
        """Put a new token instead of the current one."""
        self.write("token", self._cluster.create_token("default", "operator", lifetime=lifetime).encode())

    def permit(self, *verbs: str) -> None:
        """Permit the verbs on the custom resources, and the reading of their definitions."""
        rules = [
            {"apiGroups": ["kopf.dev"], "resources": ["kopfexamples"], "verbs": list(verbs)},
            {
                "apiGroups": ["apiextensions.k8s.io"],
                "resources": ["customresourcedefinitions"],
                "verbs": ["list", "watch"],
            },
        ]
        group = "rbac.authorization.k8s.io"
        self._cluster.apply(
            {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "operator"}, "rules": rules}
        )
        self._cluster.apply(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "operator"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "operator"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "operator"}],
            }
        )


@pytest.fixture
async def pod(
    operator: Operator,
    calls: Calls,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    as_users_run_it: None,
) -> Pod:
    kopf.on.create("kopfexamples")(calls.noting(lambda name, **_: name))
    url = yarl.URL(operator.cluster.url)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", str(url.host))
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(url.port))
    monkeypatch.setenv("KUBECONFIG", "/absent")
    monkeypatch.setattr(service_account, "SERVICE_ACCOUNT_PATH", str(tmp_path))
    pod = Pod(operator.cluster, tmp_path)
    pod.permit("list", "watch", "patch")
    return pod


@pytest.mark.fastforward
async def test_renewed_tokens_are_used_in_time(
    operator: Operator,
    pod: Pod,
    kex: Objects,
    calls: Calls,
    logs: Logs,
) -> None:
    """Tokens live for an hour, and are renewed after 80% of it: nothing is ever refused, and nobody logs in again."""
    await operator.start()
    for number in range(5):
        await asyncio.sleep(48 * 60)
        pod.renew()
        await asyncio.sleep(11 * 60)
        await kex.create_and_wait(f"obj{number}")
    assert calls == [f"obj{number}" for number in range(5)]
    assert not logs.find("Re-authentication has been initiated.")
    assert not [key for key in operator.cluster.counters if key[2] == 401]


@pytest.mark.fastforward
async def test_tokens_renewed_too_late(operator: Operator, pod: Pod, kex: Objects) -> None:
    """The token is refused, but there is a new one in the file: it is used at once, for the same request."""
    await operator.start()
    await asyncio.sleep(3700)
    pod.renew()
    await kex.create_and_wait()


@pytest.mark.fastforward
async def test_tokens_that_are_never_renewed_end_the_operator(
    operator: Operator,
    pod: Pod,
    kex: Objects,
    logs: Logs,
) -> None:
    logs.expected.append(".")
    await operator.start()
    await asyncio.sleep(3700)
    await kex.create()
    with pytest.raises(kopf.LoginError, match="the login has brought nothing new. The reason: .* 401 Unauthorized"):
        await operator.wait()


@pytest.mark.fastforward
@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("list", r".*cannot list resource \"kopfexamples\" in API group \"kopf.dev\".*"),
        ("watch", r".*cannot watch resource \"kopfexamples\" in API group \"kopf.dev\".*"),
        (
            "patch",
            r"The object could not be handled.*cannot patch resource \"kopfexamples\" in API group \"kopf.dev\".*",
        ),
    ],
)
async def test_missing_permissions_are_named_and_taken_when_granted(
    operator: Operator,
    pod: Pod,
    kex: Objects,
    logs: Logs,
    missing: str,
    message: str,
) -> None:
    verbs = ["list", "watch", "patch"]
    pod.permit(*(verb for verb in verbs if verb != missing))
    logs.expected.append(f"{missing}.*kopfexamples")
    await kex.create()
    await operator.launch()
    record = await logs.wait(message)
    assert "system:serviceaccount:default:operator" in record.getMessage()
    assert operator.is_running
    pod.permit(*verbs)
    await kex.wait_handled()
