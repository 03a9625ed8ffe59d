"""
The signers of the server itself: they sign requests for certificates of clients and kubelets, once these are approved.

See "Kubernetes signers" in "Certificates and Certificate Signing Requests".
"""

from __future__ import annotations

import base64
import datetime
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kopf_cluster import ages
from kopf_cluster.access.credentials import Credentials, sign_certificate
from kopf_cluster.control.loops import ControlLoop, Objects
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.store.watch_cache import Change

_REQUESTS: Final = "certificatesigningrequests.certificates.k8s.io"
_COMMON_USAGES: Final = frozenset({"digital signature", "key encipherment"})
_YEAR: Final = 365 * 24 * 3600


class _Signer(NamedTuple):
    """What a signer signs."""

    usage: str
    purpose: x509.ObjectIdentifier
    of_kubelets: bool


_SIGNERS: Final = {
    "kubernetes.io/kube-apiserver-client": _Signer("client auth", ExtendedKeyUsageOID.CLIENT_AUTH, False),
    "kubernetes.io/kube-apiserver-client-kubelet": _Signer("client auth", ExtendedKeyUsageOID.CLIENT_AUTH, True),
    "kubernetes.io/kubelet-serving": _Signer("server auth", ExtendedKeyUsageOID.SERVER_AUTH, True),
}


class Signers(ControlLoop):
    """Sign approved requests with the authority of the server, or tell why they refuse."""

    def __init__(self, access: Objects, credentials: Credentials) -> None:
        super().__init__(access)
        self._credentials = credentials

    def observe(self, bucket: str, change: Change) -> None:
        name = change.record.key[1]
        if bucket == _REQUESTS and change.type != "DELETED":
            self.objects.queue.add(self._sign, name)

    def _sign(self, name: str) -> None:
        request = self.objects.get(_REQUESTS, ("", name))
        signer = _SIGNERS.get(request["spec"]["signerName"]) if request is not None else None
        if request is None or signer is None:
            return
        status = request.get("status") or {}
        conditions = status.get("conditions") or []
        decisions = {item["type"] for item in conditions} & {"Approved", "Denied", "Failed"}
        if status.get("certificate") or decisions != {"Approved"}:
            return
        try:
            certificate = self._make_certificate(signer, request["spec"])
        except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
            failure = {
                "type": "Failed",
                "status": "True",
                "reason": "SignerValidationFailure",
                "message": str(error),
                "lastUpdateTime": ages.now(),
            }
            self.objects.set_status(_REQUESTS, ("", name), {**status, "conditions": [*conditions, failure]})
        else:
            encoded = base64.b64encode(certificate).decode()
            self.objects.set_status(_REQUESTS, ("", name), {**status, "certificate": encoded})

    def _make_certificate(self, signer: _Signer, spec: Obj) -> bytes:
        """Sign the request, or raise `ValueError` telling why not."""
        wanted = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        _check(signer, set(spec["usages"]), wanted.subject)
        names = next(
            (
                extension.value
                for extension in wanted.extensions
                if isinstance(extension.value, x509.SubjectAlternativeName)
            ),
            None,
        )
        return sign_certificate(
            self._credentials,
            wanted.subject,
            wanted.public_key(),
            signer.purpose,
            names=names,
            lifetime=datetime.timedelta(seconds=min(spec.get("expirationSeconds") or _YEAR, _YEAR)),
        )


def _check(signer: _Signer, usages: set[str], subject: x509.Name) -> None:
    groups = [item.value for item in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    users = [str(item.value) for item in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if signer.usage not in usages or not usages <= _COMMON_USAGES | {signer.usage}:
        raise ValueError(
            f'usages must be "{signer.usage}", and otherwise only "digital signature" and "key encipherment"'
        )
    if "system:masters" in groups:
        raise ValueError("certificates with the group system:masters are not signed")
    if signer.of_kubelets and (groups != ["system:nodes"] or not "".join(users).startswith("system:node:")):
        raise ValueError("the organization must be system:nodes, and the common name must begin with system:node:")
