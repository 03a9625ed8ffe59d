"""
Requests for certificates: who asks for one, is told by the server, and what is asked for, is never changed.

See "Certificates and Certificate Signing Requests" of the Kubernetes documentation.
"""
from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from cryptography import x509

from kopf_cluster.requests import asking
from kopf_cluster.statuses import FieldError, duplicate_value, invalid_value, required, unsupported_value

Obj: TypeAlias = dict[str, Any]

_REQUESTER: Final = ("username", "uid", "groups", "extra")
_MIN_LIFETIME: Final = 600  # seconds
_USAGES: Final = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping")
_PEM_BLOCK: Final = b"-----BEGIN CERTIFICATE REQUEST-----"


def settle(new: Obj, old: Obj | None) -> list[FieldError]:
    """Complete the spec in place, and tell what is wrong with it."""
    if old is not None:
        new["spec"] = old.get("spec")
        return []
    spec = new.get("spec") or {}
    user = asking.get().as_object()
    new["spec"] = {name: value for name, value in spec.items() if name not in _REQUESTER} | {
        name: user[name] for name in _REQUESTER if name in user}
    return list(_validate(spec))


def _validate(spec: Obj) -> Iterator[FieldError]:
    if why := _find_fault(spec.get("request") or ""):
        yield invalid_value("spec.request", spec.get("request") or "", why)
    usages = spec.get("usages") or []
    if not usages:
        yield required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            yield unsupported_value(f"spec.usages[{index}]", usage, _USAGES)
        if usage in usages[:index]:
            yield duplicate_value(f"spec.usages[{index}]", usage)
    signer = spec.get("signerName") or ""
    domain, slash, path = signer.partition("/")
    if signer == "kubernetes.io/legacy-unknown":
        yield invalid_value("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    elif signer and not (slash and path and "." in domain):
        yield invalid_value("spec.signerName", signer, "must be a fully qualified domain and path of the form "
                                                       "'example.com/signer-name'")
    lifetime = spec.get("expirationSeconds")
    if lifetime is not None and lifetime < _MIN_LIFETIME:
        yield invalid_value("spec.expirationSeconds", lifetime,
                            "may not specify a duration less than 600 seconds (10 minutes)")


def _find_fault(request: str) -> str:
    """Tell why it is no request in PEM; nothing if it is one."""
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
