"""What the siege asks of a cluster: of a local one, or of any other, where it leaves nothing behind."""

from __future__ import annotations

import pathlib
import subprocess
from typing import Any
from urllib.parse import urlsplit

import kubernetes


class Cluster:
    """The cluster of the configuration file, with a definition of a resource of its own while it is entered."""

    def __init__(self, kubeconfig: pathlib.Path, definition: pathlib.Path, group: str, plural: str) -> None:
        self.kubeconfig = kubeconfig
        self._client = kubernetes.config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]  # of the library
        self._objects = kubernetes.client.CustomObjectsApi(self._client)
        self._definition = definition
        self._place = (group, "v1")
        self._plural = plural

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self._client.configuration.host)
        return str(parts.hostname), parts.port or 443

    def __enter__(self) -> Cluster:
        self._call_kubectl("create")
        self._call_kubectl("wait", "--for=condition=Established")
        return self

    def __exit__(self, *_: object) -> None:
        for item in self.list():
            patch = {"metadata": {"finalizers": None}}
            if item["metadata"].get("finalizers"):
                self._objects.patch_namespaced_custom_object(
                    *self._place, "default", self._plural, item["metadata"]["name"], patch
                )
        self._call_kubectl("delete")

    def apply(self, manifest: dict[str, Any]) -> None:
        """Change the object, or create it."""
        try:
            self._objects.patch_namespaced_custom_object(
                *self._place, "default", self._plural, manifest["metadata"]["name"], manifest
            )
        except kubernetes.client.ApiException as e:
            if e.status != 404:
                raise
            self._objects.create_namespaced_custom_object(*self._place, "default", self._plural, manifest)

    def delete(self, name: str) -> None:
        self._objects.delete_namespaced_custom_object(*self._place, "default", self._plural, name)

    def list(self) -> list[dict[str, Any]]:
        answer: Any = self._objects.list_namespaced_custom_object(*self._place, "default", self._plural)
        items: list[dict[str, Any]] = answer["items"]
        return items

    def _call_kubectl(self, *args: str) -> None:
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *args, f"--filename={self._definition}"]
        subprocess.run(command, check=True, timeout=120)
