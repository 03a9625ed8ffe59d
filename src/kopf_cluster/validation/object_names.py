"""
Names of all sorts: the rules of "Object Names and IDs", with the messages of the API server.

Each function gives what is wrong with the name, in the words that follow "Invalid value: ...: "; nothing if it is good.
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from kopf_cluster.kinds.objects import LABEL, LABEL_RULE, SUBDOMAIN, SUBDOMAIN_RULE

_OLD_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_OLD_LABEL_RULE: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')")
_VARIABLE_RULE: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='")
_PORT_CHARACTERS: Final = re.compile(r"[-a-z0-9]*")


def label(name: str) -> Iterator[str]:
    """A label of DNS (RFC 1123): names of containers, volumes, ports of services."""
    if len(name) > 63:
        yield "must be no more than 63 bytes"
    if not LABEL.fullmatch(name):
        yield LABEL_RULE


def old_label(name: str) -> Iterator[str]:
    """A label of DNS that does not begin with a digit (RFC 1035)."""
    if len(name) > 63:
        yield "must be no more than 63 bytes"
    if not _OLD_LABEL.fullmatch(name):
        yield _OLD_LABEL_RULE


def subdomain(name: str) -> Iterator[str]:
    if len(name) > 253:
        yield "must be no more than 253 bytes"
    if not SUBDOMAIN.fullmatch(name):
        yield SUBDOMAIN_RULE


def port(number: Any) -> Iterator[str]:
    if not isinstance(number, int) or not 1 <= number <= 65535:
        yield "must be between 1 and 65535, inclusive"


def port_name(name: str) -> Iterator[str]:
    """A name of a service as of IANA (RFC 6335): names of ports of containers."""
    if len(name) > 15:
        yield "must be no more than 15 bytes"
    if not _PORT_CHARACTERS.fullmatch(name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


def variable(name: str) -> Iterator[str]:
    """A name of an environment variable."""
    if "=" in name or not name.isascii() or not name.isprintable():
        yield _VARIABLE_RULE
