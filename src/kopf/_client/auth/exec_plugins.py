"""
Credentials from external commands: the ``exec`` plugins of kubeconfigs, e.g. of EKS, GKE, AKS, OIDC.

For the protocol, see "client-go credential plugins" in the Kubernetes documentation. The command gets a description of
the cluster in the variable ``KUBERNETES_EXEC_INFO``. It prints an ``ExecCredential`` of
``client.authentication.k8s.io`` in JSON: a token, or a client certificate with its key, and their expiration.

An operator has no terminal, and nobody who could answer questions, so plugins never run interactively.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import dataclasses
import datetime
import logging
import os
import pathlib
import subprocess
from collections.abc import Mapping
from typing import Any

from kopf._client.auth.credentials import LoginError, PluginError, as_utc
from kopf._values import codec

logger = logging.getLogger(__name__)

TIMEOUT = 60.0
"""The longest run of a plugin, in seconds. Plugins that run longer usually wait for a human."""

EXTENSION = "client.authentication.k8s.io/exec"
"""The extension of a cluster in kubeconfigs whose content goes to the plugin unchanged."""

_API_GROUP = "client.authentication.k8s.io"
_API_VERSIONS = (f"{_API_GROUP}/v1", f"{_API_GROUP}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")
_TEXT_LIMIT = 1000


@dataclasses.dataclass(frozen=True)
class PluginCredentials:
    """The credentials from a plugin: a token, or a certificate with its key, or both."""

    token: str | None = dataclasses.field(repr=False)
    certificate_data: str | None = dataclasses.field(repr=False)
    private_key_data: str | None = dataclasses.field(repr=False)
    expiration: datetime.datetime | None


def run_plugin(
    plugin: Mapping[str, Any], cluster: Mapping[str, Any], *, user: str, timeout: float = TIMEOUT
) -> PluginCredentials:
    """
    Run the plugin and get its credentials. It blocks the thread while the plugin runs.

    ``plugin`` is the ``exec`` stanza of a user in a kubeconfig, with an absolute path in ``command`` if it is a path.
    ``cluster`` is a cluster of the kubeconfig; ``user`` is for messages. ``timeout`` is in seconds.

    Raises :class:`PluginError` if the plugin fails or hangs, and :class:`LoginError` if it is misconfigured, absent, or
    prints something unusable.
    """
    what = f"The plugin {plugin.get('command')!r} of the user {user!r}"
    _check(plugin, what)
    _warn_of_blocking(what)
    command = [plugin["command"], *(str(arg) for arg in plugin.get("args") or ())]
    environment = {str(item["name"]): str(item["value"]) for item in plugin.get("env") or ()}
    try:
        info = codec.encode(_make_info(plugin, cluster)).decode()
    except (ValueError, TypeError) as exc:  # YAML has values that JSON lacks, and cycles
        raise LoginError(f"{what} cannot get the description of its cluster: it has no JSON form.") from exc
    try:
        code, output, errors = _execute(
            command, env={**os.environ, **environment, "KUBERNETES_EXEC_INFO": info}, timeout=timeout
        )
    except FileNotFoundError as exc:
        raise LoginError(_add_hint(f"{what} is not found: install the command", plugin)) from exc
    except subprocess.TimeoutExpired as exc:
        said = _quote(exc.stderr or b"") or "nothing"
        raise PluginError(
            f"{what} has not finished in {timeout:g} seconds. Does it wait for a person to log in? It says: {said}"
        ) from exc
    except OSError as exc:
        raise LoginError(_add_hint(f"{what} cannot be run: {exc.strerror or exc}", plugin)) from exc
    if code != 0:
        said = _quote(errors) or "nothing"
        raise PluginError(_add_hint(f"{what} has failed with the exit code {code}, saying: {said}", plugin))
    return _parse(output, api_version=plugin["apiVersion"], what=what)


def _execute(command: list[str], *, env: Mapping[str, str], timeout: float) -> tuple[int, bytes, bytes]:
    """Run the command; it does not outlive this process. Return its exit code, output, and errors."""
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, env=env, stdin=nothing, stdout=pipe, stderr=pipe) as process:
        atexit.register(process.kill)
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
        finally:
            atexit.unregister(process.kill)
    return process.returncode, output, errors


def _check(plugin: Mapping[str, Any], what: str) -> None:
    if not plugin.get("command"):
        raise LoginError(f"{what} has no command in the kubeconfig.")
    args, variables = plugin.get("args") or [], plugin.get("env") or []
    if not isinstance(plugin["command"], str) or not isinstance(args, list):
        raise LoginError(f"{what} has a command or arguments of wrong types in the kubeconfig.")
    if not isinstance(variables, list) or not all(map(_is_variable, variables)):
        raise LoginError(f"{what} has 'env' in the kubeconfig that is not a list of names and values.")
    texts = [str(item[key]) for item in variables for key in ("name", "value")]
    if any("\0" in text for text in [plugin["command"], *map(str, args), *texts]):
        raise LoginError(f"{what} has zero bytes in its command, arguments, or variables.")
    version = plugin.get("apiVersion")
    if version not in _API_VERSIONS:
        raise LoginError(
            f"{what} is for {version!r}, but only {' and '.join(_API_VERSIONS)} are known. Kubernetes does not "
            "support older ones: update the plugin, and let it or your cloud's tools generate the kubeconfig anew."
        )
    mode = plugin.get("interactiveMode") or "IfAvailable"
    if mode not in _MODES:
        raise LoginError(f"{what} has an unknown interactiveMode {mode!r}; it can be one of {', '.join(_MODES)}.")
    if mode == "Always":
        raise LoginError(
            f"{what} needs a human at a terminal (interactiveMode is 'Always'), and an operator has none. "
            "Use a service account, or configure the plugin to log in with no questions asked."
        )


def _is_variable(item: object) -> bool:
    return (
        isinstance(item, dict)
        and item.get("name") not in (None, "")
        and "value" in item
        and ("=" not in str(item["name"]))
    )


def _warn_of_blocking(what: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return  # a regular thread, as it should be
    logger.warning(
        "%s runs in the event loop, and blocks the operator. Call the login function from a login handler "
        "that is declared with `def`, not with `async def`; or via asyncio.to_thread().",
        what,
    )


def _make_info(plugin: Mapping[str, Any], cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _describe_cluster(cluster)
    return {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}


def _describe_cluster(cluster: Mapping[str, Any]) -> Mapping[str, Any]:
    """Describe the cluster as in the kubeconfig, but with the authority always as data."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
    info = {key: cluster[key] for key in keys if cluster.get(key)}
    if cluster.get("certificate-authority-data"):
        info["certificate-authority-data"] = cluster["certificate-authority-data"]
    elif cluster.get("certificate-authority"):
        path = pathlib.Path(cluster["certificate-authority"])
        try:
            info["certificate-authority-data"] = base64.b64encode(path.read_bytes()).decode()
        except OSError as exc:
            raise LoginError(f"The certificate authority {path} cannot be read: {exc.strerror or exc}.") from exc
    extensions = cluster.get("extensions") or []
    for item in extensions if isinstance(extensions, list) else []:
        if isinstance(item, dict) and item.get("name") == EXTENSION and item.get("extension") is not None:
            info["config"] = item["extension"]
    return info


def _parse(output: bytes, *, api_version: str, what: str) -> PluginCredentials:
    try:
        content = codec.decode(output)
    except ValueError as exc:
        # The output is not quoted: it can contain secrets.
        raise LoginError(f"{what} has printed {len(output)} bytes that are not JSON.") from exc
    if not isinstance(content, dict) or content.get("kind") != "ExecCredential":
        raise LoginError(f"{what} has printed JSON that is not an ExecCredential.")
    if content.get("apiVersion") != api_version:
        raise LoginError(
            f"{what} has responded in {content.get('apiVersion')!r}, while {api_version!r} is in the kubeconfig. "
            "Update the plugin, and generate the kubeconfig anew."
        )
    status = content.get("status")
    if not isinstance(status, dict):
        raise LoginError(f"{what} has returned no credentials: its ExecCredential has no status.")
    token, certificate, key = (status.get(name) or None for name in ("token", "clientCertificateData", "clientKeyData"))
    if any(value is not None and not isinstance(value, str) for value in (token, certificate, key)):
        raise LoginError(f"{what} has returned a token, a client certificate, or its key of a wrong type.")
    if (certificate is None) != (key is None):
        raise LoginError(f"{what} has returned a client certificate without its key, or a key without its certificate.")
    if token is None and certificate is None:
        raise LoginError(f"{what} has returned neither a token nor a client certificate.")
    try:
        expiration = _parse_timestamp(status.get("expirationTimestamp"))
    except ValueError as exc:
        raise LoginError(f"{what} has returned an unusable expirationTimestamp: {str(exc)[:_TEXT_LIMIT]}.") from exc
    return PluginCredentials(token, certificate, key, expiration)


def _parse_timestamp(value: Any) -> datetime.datetime | None:
    """Parse a timestamp of RFC 3339. Raises :class:`ValueError`."""
    if not value:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{repr(value)[:_TEXT_LIMIT]} is not a string")
    return as_utc(datetime.datetime.fromisoformat(value))


def _add_hint(message: str, plugin: Mapping[str, Any]) -> str:
    hint = " ".join(str(plugin.get("installHint") or "").split())
    return f"{message}. The hint of the kubeconfig: {hint}" if hint else f"{message}."


def _quote(output: bytes) -> str:
    text = " ".join(output.decode("utf-8", errors="replace").split())
    return text if len(text) <= _TEXT_LIMIT else f"…{text[-_TEXT_LIMIT:]}"
