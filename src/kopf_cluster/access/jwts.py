"""
Signed tokens (JWT, RFC 7519) and the public key for them (JWK, RFC 7517): so that others can verify who somebody is.

See "Service account issuer discovery" of the Kubernetes documentation.
"""
from __future__ import annotations

import base64
import functools
import hashlib
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from kopf_cluster import codec

ALGORITHM: Final = "ES256"
_SIZE: Final = 32  # bytes of a coordinate


class Signer:
    """Signs with a key that is made when it is needed first, and lives as long as the signer."""

    @functools.cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    def sign(self, claims: dict[str, Any]) -> str:
        header = {"alg": ALGORITHM, "kid": self.public_key["kid"]}
        text = f"{_encode(codec.encode(header))}.{_encode(codec.encode(claims))}"
        r, s = decode_dss_signature(self._key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_encode(r.to_bytes(_SIZE, 'big') + s.to_bytes(_SIZE, 'big'))}"

    @functools.cached_property
    def public_key(self) -> dict[str, str]:
        """The public key, as it is published."""
        numbers = self._key.public_key().public_numbers()
        x, y = numbers.x.to_bytes(_SIZE, "big"), numbers.y.to_bytes(_SIZE, "big")
        return {"use": "sig", "kty": "EC", "kid": _encode(hashlib.sha256(x + y).digest()), "crv": "P-256",
                "alg": ALGORITHM, "x": _encode(x), "y": _encode(y)}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
