"""
Bearer tokens of service accounts, which expire and are bound to objects; and fixed tokens of any users.

The tokens are signed, so that others can verify them; but the server itself accepts only tokens that it remembers.
A token becomes invalid when it expires, by the clock of the event loop, or when any of its bound objects is gone: the
service account, and the pod or the secret, if any. See "Managing Service Accounts".
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import functools
import hashlib
import math
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from kopf_cluster import ages, codec
from kopf_cluster.requests import User
from kopf_cluster.store.storage import Store
from kopf_cluster.store.watch_cache import Key

AUDIENCE: Final = "https://kubernetes.default.svc"
LIFETIME: Final = 3600.0
"""The default lifetime of a token, and the minimal one, in seconds; as in kube-apiserver."""
MIN_LIFETIME: Final = 600.0

_PREFIX: Final = "system:serviceaccount:"


@dataclasses.dataclass(frozen=True, slots=True)
class Binding:
    """An object that must exist with this UID."""

    bucket: str
    key: Key
    uid: str

    def holds(self, store: Store) -> bool:
        record = store.bucket(self.bucket).records.get(self.key)
        return record is not None and record.uid == self.uid


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """The data of a token."""

    user: User
    bindings: tuple[Binding, ...]
    audiences: tuple[str, ...]
    expires: float
    """The time of the event loop."""


class Tokens:
    """The issued tokens. They outlive a restart of the server in the same process."""

    def __init__(self) -> None:
        self._known: dict[str, Token] = {}
        self.signer = Signer()

    def issue(self, bindings: Iterable[Binding], audiences: Iterable[str] = (), lifetime: float = LIFETIME) -> str:
        """Return a new token of the service account in the first binding. The lifetime is in seconds."""
        now = asyncio.get_running_loop().time()
        self._known = {text: token for text, token in self._known.items() if token.expires > now}
        account, *others = bindings
        user, audiences = service_account(*account.key, uid=account.uid), tuple(audiences) or (AUDIENCE,)
        text = self.signer.sign(_make_claims(user, (account, *others), audiences, lifetime))
        self._known[text] = Token(user, (account, *others), audiences, now + lifetime)
        return text

    def add(self, text: str, user: User) -> None:
        """Accept this token for the user as long as the process lives."""
        self._known[text] = Token(user, (), (AUDIENCE,), math.inf)

    def find(self, text: str, store: Store, audiences: Iterable[str] = (AUDIENCE,)) -> User | None:
        """Return the user of a token that is valid for any of these audiences; none if it is invalid."""
        token = self._known.get(text)
        if token is None or token.expires <= asyncio.get_running_loop().time():
            return None
        good = not set(token.audiences).isdisjoint(audiences) and all(item.holds(store) for item in token.bindings)
        return token.user if good else None


def _make_claims(
    user: User,
    bindings: Sequence[Binding],
    audiences: Sequence[str],
    lifetime: float,
) -> dict[str, Any]:
    """Return the claims of a token; their times are by the clock of timestamps."""
    now = int(ages.moment().timestamp())
    (namespace, _), *_ = (binding.key for binding in bindings)
    bound = {binding.bucket.removesuffix("s"): {"name": binding.key[1], "uid": binding.uid} for binding in bindings}
    return {
        "aud": audiences,
        "exp": now + int(lifetime),
        "iat": now,
        "iss": AUDIENCE,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": {"namespace": namespace, **bound},
        "nbf": now,
        "sub": user.name,
    }


def service_account(namespace: str, name: str, uid: str = "") -> User:
    """Return the user of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"{_PREFIX}{namespace}:{name}", groups, uid)


def make_user(name: str, groups: Iterable[str] = ()) -> User:
    """Return the user of this name in the given groups and in ``system:authenticated``.

    Without groups, a service account, ``system:serviceaccount:default:operator``, gets its own groups.
    """
    groups = tuple(groups)
    namespace, colon, account = name.removeprefix(_PREFIX).partition(":")
    if not groups and name.startswith(_PREFIX) and colon and namespace and account:
        return service_account(namespace, account)
    return User(name, (*dict.fromkeys([*groups, "system:authenticated"]),))


# Signed tokens (JWT, RFC 7519) and the public key for them (JWK, RFC 7517), by which others can verify them.
#
# See "Service account issuer discovery" of the Kubernetes documentation.

ALGORITHM: Final = "ES256"
_SIZE: Final = 32  # bytes of a coordinate


class Signer:
    """Signs with a key, which is made on the first use, and lives as long as the signer."""

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
        """The published form of the public key."""
        numbers = self._key.public_key().public_numbers()
        x, y = numbers.x.to_bytes(_SIZE, "big"), numbers.y.to_bytes(_SIZE, "big")
        return {
            "use": "sig",
            "kty": "EC",
            "kid": _encode(hashlib.sha256(x + y).digest()),
            "crv": "P-256",
            "alg": ALGORITHM,
            "x": _encode(x),
            "y": _encode(y),
        }


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
