"""
Network policies: whom they are for, and who may talk to whom.
"""
from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kopf_cluster.statuses import FieldError, forbidden_value, invalid_value, required
from kopf_cluster.validation import object_names
from kopf_cluster.validation.nested_selectors import validate_selector

Obj: TypeAlias = dict[str, Any]

_CIDR: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def validate(new: Obj, old: Obj | None) -> Iterator[FieldError]:
    spec = new.get("spec") or {}
    yield from validate_selector(spec.get("podSelector") or {}, "spec.podSelector")
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                yield from _validate_port(port, f"{path}.ports[{place}]")
            for place, peer in enumerate(rule.get(peers) or ()):
                yield from _validate_peer(peer, f"{path}.{peers}[{place}]")


def _validate_port(port: Obj, path: str) -> Iterator[FieldError]:
    number, last = port.get("port"), port.get("endPort")
    if number is not None:
        for why in object_names.port_name(number) if isinstance(number, str) else object_names.port(number):
            yield invalid_value(f"{path}.port", number, why)
    if last is None:
        return
    if number is None:
        yield required(f"{path}.port", "must be specified when `endPort` is specified")
    elif isinstance(number, str):
        yield invalid_value(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
    elif last < number:
        yield invalid_value(f"{path}.endPort", last, "must be greater than or equal to `port`")
    for why in object_names.port(last):
        yield invalid_value(f"{path}.endPort", last, why)


def _validate_peer(peer: Obj, path: str) -> Iterator[FieldError]:
    for field in ("podSelector", "namespaceSelector"):
        yield from validate_selector(peer.get(field) or {}, f"{path}.{field}")
    block = peer.get("ipBlock")
    if block is not None:
        yield from _validate_block(block, f"{path}.ipBlock")
    if not peer:
        yield required(path, "must specify a peer")
    elif block is not None and len(peer) > 1:
        yield forbidden_value(path, "may not specify both ipBlock and another peer")


def _validate_block(block: Obj, path: str) -> Iterator[FieldError]:
    cidr = block.get("cidr") or ""
    if not cidr:
        yield required(f"{path}.cidr")
        return
    network = _read_network(cidr)
    if network is None:
        yield invalid_value(f"{path}.cidr", cidr, _CIDR)
    for index, text in enumerate(block.get("except") or ()):
        part = _read_network(text)
        if part is None:
            yield invalid_value(f"{path}.except[{index}]", text, _CIDR)
        elif network is not None and (part.version != network.version or part == network
                                      or part.network_address not in network or part.prefixlen < network.prefixlen):
            yield invalid_value(f"{path}.except[{index}]", text, "must be a strict subset of `cidr`")


def _read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None
