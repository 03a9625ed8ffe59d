"""
Login by kubeconfig files, as ``kubectl`` reads them.

For the rules, see "Organizing Cluster Access Using kubeconfig Files" in the Kubernetes documentation: the files in
``KUBECONFIG`` are merged, the first value wins, absent files are skipped, and paths inside a file are relative to that
file.

Unsupported entries are refused, not ignored: the operator must not act in the cluster as another user than intended.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from kopf._client.auth.credentials import ConnectionInfo, LoginError, decode_pem

logger = logging.getLogger(__name__)

DEFAULT_KUBECONFIG = "~/.kube/config"

_CLUSTER_PATHS = ("certificate-authority",)
_USER_PATHS = ("client-certificate", "client-key", "tokenFile")
_INSECURE = "insecure-skip-tls-verify"

_Types = Mapping[type, Collection[str]]
"""The required types of fields that are present."""

_CONTEXT_TYPES: _Types = {str: ("cluster", "user", "namespace")}
_CLUSTER_TYPES: _Types = {
    str: ("server", "proxy-url", "tls-server-name", "certificate-authority", "certificate-authority-data"),
    bool: (_INSECURE, "disable-compression"),
}
_USER_TYPES: _Types = {
    str: (
        *("token", "tokenFile", "username", "password"),
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
    ),
    dict: ("exec", "auth-provider"),
}
_TYPE_NAMES = {str: "a string", bool: "true or false", dict: "a mapping"}
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
_SUCCESSORS = {
    "gcp": "Install `gke-gcloud-auth-plugin`, and run `gcloud container clusters get-credentials …`.",
    "azure": "Install `kubelogin`, and run `kubelogin convert-kubeconfig`.",
    "oidc": "Install the plugin `kubectl oidc-login`, and run `kubectl oidc-login setup …`.",
}
_ANY_SUCCESSOR = "Replace it with an exec plugin, as it is said in the documentation of your cluster's provider."


class AuthProviderError(LoginError):
    """The kubeconfig relies on an ``auth-provider``: Kubernetes dropped them, though some libraries did not."""


@dataclasses.dataclass
class Kubeconfig:
    """The merged content of all kubeconfig files: the entries by their names, with absolute paths."""

    paths: list[pathlib.Path] = dataclasses.field(default_factory=list)
    current_context: str | None = None
    contexts: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    clusters: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    users: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def where(self) -> str:
        """The paths of the files, for messages."""
        return ", ".join(str(path) for path in self.paths)

    @property
    def is_empty(self) -> bool:
        """Whether there are no files, or only empty ones, such as ``kubectl config`` leaves."""
        return not (self.current_context or self.contexts or self.clusters)


def login_with_kubeconfig(**_: Any) -> ConnectionInfo | None:
    """
    Log in by the current context of the kubeconfig files: those in ``KUBECONFIG``, or ``~/.kube/config``.

    Returns ``None`` if there are no files, or only empty ones. Raises :class:`LoginError` if the files are malformed or
    inconsistent, or if an ``exec`` plugin has failed. The plugin blocks the thread while it runs: in ``async def``
    handlers, use :func:`asyncio.to_thread`.
    """
    config = read_current_kubeconfig()
    if not config.paths and os.environ.get("KUBECONFIG"):
        logger.warning("The KUBECONFIG variable names no existing file: %s", os.environ["KUBECONFIG"])
    return None if config.is_empty else make_connection_info(config)


def read_current_kubeconfig() -> Kubeconfig:
    """Read and merge the files of ``KUBECONFIG``, or ``~/.kube/config``. Raises :class:`LoginError`."""
    source = os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
    return read_kubeconfigs([path for path in source.split(os.pathsep) if path])


def read_kubeconfigs(paths: list[str]) -> Kubeconfig:
    """Read and merge the files that exist. Raises :class:`LoginError` if one is unreadable or malformed."""
    result = Kubeconfig()
    for path in (pathlib.Path(path).expanduser() for path in paths):
        content = _read_file(path)
        if content is not None:
            result.paths.append(path)
            _merge(result, content, path)
    return result


def make_connection_info(config: Kubeconfig) -> ConnectionInfo:
    """Get the server and the credentials of the current context. Raises :class:`LoginError` if it is unusable."""
    where = config.where
    context, cluster, user = get_context(config)
    if not cluster.get("server"):
        raise LoginError(f"The cluster {context['cluster']!r} has no server in {where}.")
    _refuse_unsupported(user, context.get("user"), where)
    try:
        return ConnectionInfo(
            server=cluster["server"],
            default_namespace=context.get("namespace") or None,
            proxy_url=cluster.get("proxy-url") or None,
            tls_server_name=cluster.get("tls-server-name") or None,
            insecure=cluster.get("insecure-skip-tls-verify"),
            **_get_path_or_data("ca", cluster, "certificate-authority"),
            **_get_credentials(user, context.get("user"), cluster),
        )
    except ValueError as exc:
        raise LoginError(f"The context {config.current_context!r} of {where} is unusable: {exc}") from exc


def get_context(config: Kubeconfig) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """Get the current context, its cluster, and its user. Raises :class:`LoginError` if one of them is absent."""
    if not config.current_context:
        raise LoginError(f"No current context in {config.where}: choose one with `kubectl config use-context …`.")
    context = _get_entry(config.contexts, "context", config.current_context, config.where)
    _check_types("context", config.current_context, context, config.where, _CONTEXT_TYPES)
    cluster = _get_entry(config.clusters, "cluster", context.get("cluster"), config.where)
    user = _get_entry(config.users, "user", context["user"], config.where) if context.get("user") else {}
    _check_types("cluster", context["cluster"], cluster, config.where, _CLUSTER_TYPES)
    _check_types("user", context.get("user"), user, config.where, _USER_TYPES)
    if cluster.get(_INSECURE) and (cluster.get("certificate-authority") or cluster.get("certificate-authority-data")):
        raise LoginError(
            f"The cluster {context['cluster']!r} of {config.where} has both a certificate authority and {_INSECURE!r}, "
            "so it is unclear whether to verify the server. Remove one of the two."
        )
    return context, cluster, user


def _check_types(kind: str, name: str | None, entry: Mapping[str, Any], where: str, types: _Types) -> None:
    """Refuse values of wrong types, e.g. ``"false"`` for a flag. Do not show the values, as they can be secret."""
    for cls, keys in types.items():
        for key in keys:
            if (value := entry.get(key)) is not None and not isinstance(value, cls):
                what, found = _TYPE_NAMES[cls], type(value).__name__
                raise LoginError(f"The {kind} {name!r} of {where} has {key!r} that is not {what}, but {found}.")


def _read_file(path: pathlib.Path) -> Mapping[str, Any] | None:
    import yaml  # pods have service accounts instead

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml, it takes a tenth of the time
    try:
        content = yaml.load(path.read_bytes(), loader)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise LoginError(f"The kubeconfig {path} cannot be read: {exc.strerror or exc}.") from exc
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        # The errors quote lines, which can contain secrets, so they are neither shown nor chained.
        raise LoginError(f"The kubeconfig {path} is not valid YAML{_locate(exc)}.") from None
    if content is not None and not isinstance(content, dict):
        raise LoginError(f"The kubeconfig {path} is not a mapping, but {type(content).__name__}.")
    return content or {}


def _locate(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)  # of ``yaml.MarkedYAMLError``
    return "" if mark is None else f": line {mark.line + 1}, column {mark.column + 1}"


def _merge(config: Kubeconfig, content: Mapping[str, Any], path: pathlib.Path) -> None:
    current_context = content.get("current-context")
    if current_context is not None and not isinstance(current_context, str):
        raise LoginError(f"The kubeconfig {path} has 'current-context' that is not a string.")
    config.current_context = config.current_context or current_context
    for entries, section, key, path_fields in (
        (config.contexts, "contexts", "context", ()),
        (config.clusters, "clusters", "cluster", _CLUSTER_PATHS),
        (config.users, "users", "user", _USER_PATHS),
    ):
        content_of_section = content.get(section) or []
        if not isinstance(content_of_section, list):
            raise LoginError(f"The kubeconfig {path} has {section!r} that is not a list.")
        for entry in content_of_section:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise LoginError(f"The kubeconfig {path} has an entry with no name in {section!r}.")
            value = entry.get(key) or {}
            if not isinstance(value, dict):
                raise LoginError(f"The kubeconfig {path} has {key!r} of {entry['name']!r} that is not a mapping.")
            absolute = {
                name: str(path.absolute().parent / value[name])
                for name in path_fields
                if value.get(name) and isinstance(value[name], str)
            }
            entries.setdefault(entry["name"], {**value, **absolute, **_locate_plugin(value, path)})


def _locate_plugin(value: Mapping[str, Any], path: pathlib.Path) -> Mapping[str, Any]:
    """Make a command with slashes relative to its file, as all other paths. Others are found in ``PATH``."""
    plugin = value.get("exec")
    if not isinstance(plugin, dict) or not isinstance(plugin.get("command") or "", str):
        return {}  # it is refused only if it is used
    if os.path.basename(plugin.get("command") or "") == (plugin.get("command") or ""):
        return {}
    return {"exec": {**plugin, "command": str(path.absolute().parent / plugin["command"])}}


def _get_entry(entries: Mapping[str, Mapping[str, Any]], kind: str, name: str | None, where: str) -> Mapping[str, Any]:
    if name is None or name not in entries:
        known = ", ".join(repr(known) for known in entries) or "none"
        raise LoginError(f"The {kind} {name!r} is not found in {where}; the known ones are: {known}.")
    return entries[name]


def _refuse_unsupported(user: Mapping[str, Any], name: str | None, where: str) -> None:
    impersonation = [key for key in _IMPERSONATION if user.get(key)]
    if impersonation:
        raise LoginError(
            f"The user {name!r} of {where} impersonates another user ({', '.join(map(repr, impersonation))}), "
            "which is not supported. Log in as the intended user, e.g. with `kubectl create token …`."
        )
    if user.get("auth-provider"):
        provider = user["auth-provider"].get("name")
        raise AuthProviderError(
            f"The user {name!r} of {where} relies on the auth-provider {provider!r}, which Kubernetes itself does not "
            f"support anymore. {_SUCCESSORS.get(str(provider), _ANY_SUCCESSOR)}"
        )


def _get_credentials(user: Mapping[str, Any], name: str | None, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """
    Get the credentials from the kubeconfig itself, or from its plugin if there are none, as kubectl does.

    Credentials from a plugin are used until they expire or are refused. Then another login runs the plugin again.
    """
    certificates = {
        **_get_path_or_data("certificate", user, "client-certificate"),
        **_get_path_or_data("private_key", user, "client-key"),
    }
    if user.get("tokenFile"):
        return {"token_path": user["tokenFile"], **certificates}
    static = {field: user[field] for field in ("username", "password", "token") if user.get(field)}
    if static or not user.get("exec"):
        return {**static, **certificates}
    from kopf._client.auth.exec_plugins import run_plugin  # few kubeconfigs have them

    dynamic = run_plugin(user["exec"], cluster, user=str(name))
    return (
        dataclasses.asdict(dynamic)
        if dynamic.certificate_data
        else {"token": dynamic.token, "expiration": dynamic.expiration, **certificates}
    )


def _get_path_or_data(prefix: str, entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Get the data or the path of the file. Data takes precedence, as in kubectl."""
    if entry.get(f"{key}-data"):
        return {f"{prefix}_data": decode_pem(entry[f"{key}-data"])}
    return {f"{prefix}_path": entry[key]} if entry.get(key) else {}
