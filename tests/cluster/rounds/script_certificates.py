"""Requests for certificates: made, approved, denied, and signed."""

from __future__ import annotations

import re

from tests.cluster.conftest import make_request
from tests.cluster.rounds.scripts import fail, run, same

REQUEST = """
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: %s}
spec: {request: %s, signerName: %s, usages: [client auth], expirationSeconds: 3600}
"""
CLIENT = "kubernetes.io/kube-apiserver-client"
CSR = "certificatesigningrequest.certificates.k8s.io"

STEPS = [
    same("create -f -", f"{CSR}/jane created", stdin=REQUEST % ("jane", make_request(), CLIENT)),
    run(
        "get csr",
        re.compile(r"^NAME +AGE +SIGNERNAME +REQUESTOR +REQUESTEDDURATION +CONDITION$", re.MULTILINE),
        re.compile(rf"^jane +\d+s +{CLIENT} +kubernetes-admin +60m +Pending$", re.MULTILINE),
    ),
    same("certificate approve jane", f"{CSR}/jane approved"),
    same(
        "get csr jane -o jsonpath='{.status.conditions[*].type} {.status.conditions[0].reason} "
        "{.status.conditions[0].message}'",
        "Approved KubectlApprove This CSR was approved by kubectl certificate approve.",
    ),
    fail("certificate deny jane", 'certificate signing request "jane" is already Approved'),
    same("certificate approve jane", f"{CSR}/jane approved"),
    fail(
        'patch csr jane --subresource=approval --type=json -p \'[{"op":"add","path":"/status/conditions/-",'
        '"value":{"type":"Denied","status":"True"}}]\'',
        'Invalid value: "Denied": Approved and Denied conditions are mutually exclusive',
    ),
    fail(
        'patch csr jane --subresource=status --type=merge -p \'{"status":{"conditions":[]}}\'',
        'Forbidden: updates may not remove a condition of type "Approved"',
    ),
    same("create -f -", f"{CSR}/joe created", stdin=REQUEST % ("joe", make_request(), CLIENT)),
    same("certificate deny joe", f"{CSR}/joe denied"),
    run("get csr joe", re.compile(r" +Denied$", re.MULTILINE)),
    run(
        "describe csr joe",
        re.compile("Requesting User: +kubernetes-admin"),
        re.compile("Status: +Denied"),
        re.compile("Common Name: +jane"),
    ),
    fail("certificate approve absent", 'certificatesigningrequests.certificates.k8s.io "absent" not found'),
    fail("create -f -", "spec.request: Invalid value", stdin=REQUEST % ("bad", "bm90IGEgcmVxdWVzdA==", CLIENT)),
    fail("create -f -", "must be a fully qualified domain and path", stdin=REQUEST % ("bad", make_request(), "plain")),
    same("delete csr --all", f'{CSR} "jane" deleted\n{CSR} "joe" deleted'),
]
