"""
Requests for certificates: their conditions, whose decisions are final, and their specs.

Clients decide by the subresource ``approval``; the signers write the ``status``, which keeps the decisions. See
"Certificates and Certificate Signing Requests" of the Kubernetes documentation.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from cryptography import x509

from kopf_cluster import ages
from kopf_cluster.requests import asking
from kopf_cluster.statuses import (
    FieldError,
    duplicate_value,
    forbidden_value,
    invalid_value,
    needed,
    one_of,
    required,
    unsupported_value,
)

Obj: TypeAlias = dict[str, Any]
Conditions: TypeAlias = list[Obj]

_DECISIONS: Final = ("Approved", "Denied")
_FINAL: Final = (*_DECISIONS, "Failed")
_STATUSES: Final = ("False", "True", "Unknown")
_PATH: Final = "status.conditions"


def settle(status: Obj, before: Obj, *, keep: bool = False) -> Obj:
    """Return the status with the times of its conditions, and with the old decisions if they must be kept.

    Conditions of wrong types stay unchanged, as the validation refuses them.
    """
    conditions = status.get("conditions")
    if not _is_well_formed(conditions):
        return status
    if not conditions:
        return {name: value for name, value in status.items() if name != "conditions"}
    old = before.get("conditions") or []
    return {**status, "conditions": _stamp(_keep(conditions, old) if keep else conditions, old)}


def _is_well_formed(conditions: Any) -> bool:
    return conditions is None or (
        isinstance(conditions, list)
        and all(
            isinstance(item, dict) and all(value is None or isinstance(value, str) for value in item.values())
            for item in conditions
        )
    )


def _keep(new: Conditions, old: Conditions) -> Conditions:
    """Restore the old decisions, unless some are added or removed, which is refused later."""
    result = list(new)
    for kind in _DECISIONS:
        known, places = _of(old, kind), [place for place, item in enumerate(new) if item.get("type") == kind]
        if len(known) == len(places):
            for place, item in zip(places, known, strict=True):
                result[place] = item
    return result


def _stamp(new: Conditions, old: Conditions) -> Conditions:
    """Add the times of the updates and the transitions where the client omits them."""
    since = {(item.get("type"), item.get("status")): item.get("lastTransitionTime") for item in reversed(old)}
    return [
        {
            **item,
            "lastUpdateTime": item.get("lastUpdateTime") or ages.now(),
            "lastTransitionTime": (
                item.get("lastTransitionTime") or since.get((item.get("type"), item.get("status"))) or ages.now()
            ),
        }
        for item in new
    ]


def validate_approval(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Yield all errors in the conditions, and removed decisions."""
    conditions = _conditions(new)
    seen: set[Any] = set()
    for index, item in enumerate(conditions):
        kind, status, path = item.get("type") or "", item.get("status") or "", f"{_PATH}[{index}]"
        yield from needed(f"{path}.type", kind)
        allowed = ("True",) if kind in _FINAL else _STATUSES
        if not status:
            yield required(f"{path}.status")
        elif status not in allowed:
            yield unsupported_value(f"{path}.status", status, allowed)
        if kind in _DECISIONS and seen & ({*_DECISIONS} - {kind}):
            yield invalid_value(f"{path}.type", kind, "Approved and Denied conditions are mutually exclusive")
        if kind in seen:
            yield duplicate_value(f"{path}.type", kind)
        seen.add(kind)
    for kind in _FINAL:
        if len(_of(conditions, kind)) < len(_of(_conditions(old), kind)):
            yield forbidden_value(_PATH, f'updates may not remove a condition of type "{kind}"')


def validate_status(new: Obj, old: Obj) -> Iterator[FieldError]:
    """Yield all errors in the conditions, and removed or added decisions."""
    yield from validate_approval(new, old)
    for kind in _DECISIONS:
        if len(_of(_conditions(new), kind)) > len(_of(_conditions(old), kind)):
            yield forbidden_value(_PATH, f'updates may not add a condition of type "{kind}"')


def _of(conditions: Conditions, kind: str) -> Conditions:
    return [item for item in conditions if item.get("type") == kind]


def _conditions(obj: Obj) -> Conditions:
    return (obj.get("status") or {}).get("conditions") or []


# The specs of requests: the server sets the requester, and nothing can be changed later.
#
# See "Certificates and Certificate Signing Requests" of the Kubernetes documentation.

_REQUESTER: Final = ("username", "uid", "groups", "extra")
_MIN_LIFETIME: Final = 600  # seconds
_USAGES: Final = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
_PEM_BLOCK: Final = b"-----BEGIN CERTIFICATE REQUEST-----"


def settle_request(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    """Complete the spec in place, and yield the errors in it; the spec of an existing request stays as it is."""
    if old is not None:
        new["spec"] = old.get("spec")
        return
    spec = new.get("spec") or {}
    user = asking.get().as_object()
    new["spec"] = {name: value for name, value in spec.items() if name not in _REQUESTER} | {
        name: user[name] for name in _REQUESTER if name in user
    }
    if why := _find_fault(spec.get("request") or ""):
        yield invalid_value("spec.request", spec.get("request") or "", why)
    usages = spec.get("usages") or []
    yield from needed("spec.usages", usages)
    for index, usage in enumerate(usages):
        yield from one_of(f"spec.usages[{index}]", usage, _USAGES)
        if usage in usages[:index]:
            yield duplicate_value(f"spec.usages[{index}]", usage)
    signer = spec.get("signerName") or ""
    domain, slash, path = signer.partition("/")
    if signer == "kubernetes.io/legacy-unknown":
        yield invalid_value("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    elif signer and not (slash and path and "." in domain):
        yield invalid_value(
            "spec.signerName", signer, "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        )
    lifetime = spec.get("expirationSeconds")
    if lifetime is not None and lifetime < _MIN_LIFETIME:
        yield invalid_value(
            "spec.expirationSeconds", lifetime, "may not specify a duration less than 600 seconds (10 minutes)"
        )


def _find_fault(request: str) -> str:
    """Return why the text is no request in PEM; an empty text if it is one."""
    try:
        pem = base64.b64decode(request)
    except binascii.Error:
        pem = b""
    if _PEM_BLOCK not in pem:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        parsed = x509.load_pem_x509_csr(pem)
    except ValueError as error:
        return f"x509: malformed certificate request: {error}"
    return "" if parsed.is_signature_valid else "x509: ECDSA verification failure"
