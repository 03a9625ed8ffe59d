"""
Connections to containers and proxies: what clients ask for is read, so that webhooks can say what they think of it.

Nothing can be connected to here, so it is refused in any case.
"""
from __future__ import annotations

import urllib.parse
from typing import Any, Final

from kopf_cluster import statuses
from kopf_cluster.kinds.kind import Obj
from kopf_cluster.kinds.resources import Subresource
from kopf_cluster.requests import Request

#: The subresources that are connections; and what else could only be told by a kubelet.
CONNECTIONS: Final = frozenset({"attach", "exec", "portforward", "proxy"})
OF_KUBELETS: Final = CONNECTIONS | {"log"}

_FLAGS: Final = frozenset({"stdin", "stdout", "stderr", "tty"})
_TEXTS: Final = frozenset({"container", "path"})


def read_options(subresource: Subresource, rest: str, request: Request) -> Obj:
    """Make the object of the options in the query; of a proxy, the rest of the path is one of them."""
    options: dict[str, Any] = {"kind": subresource.kind, "apiVersion": subresource.version}
    for name, value in urllib.parse.parse_qsl(request.raw_query):
        if name in _FLAGS:
            options[name] = request.flag(name)
        elif name in _TEXTS:
            options[name] = value
        elif name == "command":
            options.setdefault(name, []).append(value)
        elif name == "ports":
            options.setdefault(name, []).append(_read_port(value))
    return options | ({"path": f"/{rest}"} if rest else {})


def _read_port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)
