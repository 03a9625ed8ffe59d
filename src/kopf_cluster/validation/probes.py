"""
What is asked and told from outside while a container runs: probes, and the hooks of its life.

See "Configure Liveness, Readiness and Startup Probes" and "Container Lifecycle Hooks".
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, forbidden_value, invalid_value, required
from kopf_cluster.validation import object_names
from kopf_cluster.validation.numbers import not_negative

Obj: TypeAlias = dict[str, Any]

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")

_NOT_WHILE_STARTING: Final = "may not be set for init containers without restartPolicy=Always"
_HEADER: Final = re.compile(r"[-A-Za-z0-9]+")
_HEADER_RULE: Final = ("a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', "
                       "regex used for validation is '[-A-Za-z0-9]+')")


def validate_probes(container: Obj, path: str, grace: int) -> Iterator[FieldError]:
    """Give what is wrong with the hooks and the probes; the grace is how long its pod has to stop, in seconds."""
    lifecycle = container.get("lifecycle") or {}
    for field in _HOOKS:
        if field in lifecycle:
            yield from _validate_handler(lifecycle[field], f"{path}.lifecycle.{field}", grace)
    for field in _PROBES:
        if field in container:
            yield from _validate_probe(container[field], f"{path}.{field}", grace, is_gate=field == "readinessProbe")


def forbid_probes(container: Obj, path: str) -> Iterator[FieldError]:
    """Containers that must end before the pod begins have none of that."""
    for field in ("lifecycle", *_PROBES):
        if field in container:
            yield forbidden_value(f"{path}.{field}", _NOT_WHILE_STARTING)


def _validate_probe(probe: Obj, path: str, grace: int, *, is_gate: bool) -> Iterator[FieldError]:
    yield from _validate_handler(probe, path, grace)
    yield from not_negative(probe, path, "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
                            "failureThreshold")
    own = probe.get("terminationGracePeriodSeconds")
    if own is not None and own <= 0:
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", own, "must be greater than 0")
    if is_gate and own is not None:
        yield invalid_value(f"{path}.terminationGracePeriodSeconds", own, "must not be set for readinessProbes")
    if not is_gate and probe.get("successThreshold", 1) != 1:
        yield invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _validate_handler(owner: Obj, path: str, grace: int) -> Iterator[FieldError]:
    present = [name for name in _HANDLERS if name in owner]
    if not present:
        yield required(path, "must specify a handler type")
        return
    yield from _validate_action(present[0], owner[present[0]], f"{path}.{present[0]}", grace)
    for name in present[1:]:
        yield forbidden_value(f"{path}.{name}", "may not specify more than 1 handler type")


def _validate_action(kind: str, action: Obj, path: str, grace: int) -> Iterator[FieldError]:
    if kind == "exec":
        if not action.get("command"):
            yield required(f"{path}.command")
    elif kind == "sleep":
        seconds = action.get("seconds") or 0
        if not 0 <= seconds <= grace:
            yield invalid_value(path, seconds,
                                f"must be non-negative and less than terminationGracePeriodSeconds ({grace})")
    else:
        port = action.get("port", 0)
        for why in object_names.port_name(port) if isinstance(port, str) else object_names.port(port):
            yield invalid_value(f"{path}.port", port, why)
        for header in action.get("httpHeaders") or ():
            if not _HEADER.fullmatch(header.get("name") or ""):
                yield invalid_value(f"{path}.httpHeaders", header.get("name") or "", _HEADER_RULE)
