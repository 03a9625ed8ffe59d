"""
Who issues the tokens of service accounts, and by which keys they can be verified: the documents of OpenID Connect.

See "Service account issuer discovery" of the Kubernetes documentation.
"""
from __future__ import annotations

from typing import Final

from kopf_cluster import codec
from kopf_cluster.access.jwts import ALGORITHM
from kopf_cluster.access.tokens import AUDIENCE, Tokens
from kopf_cluster.requests import Answer, Request

_CACHED: Final = {"Cache-Control": "public, max-age=3600"}


def answer(request: Request, address: str, tokens: Tokens) -> Answer | None:
    """Answer if the path is one of these."""
    match request.path:
        case (".well-known", "openid-configuration"):
            document = {"issuer": AUDIENCE, "jwks_uri": f"https://{address}/openid/v1/jwks",
                        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
                        "id_token_signing_alg_values_supported": [ALGORITHM]}
            return Answer(200, codec.encode(document), headers=_CACHED)
        case ("openid", "v1", "jwks"):
            keys = codec.encode({"keys": [tokens.signer.public_key]})
            return Answer(200, keys, "application/jwk-set+json", _CACHED)
    return None
