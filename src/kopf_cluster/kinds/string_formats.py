"""
The formats of texts in schemas with the checks of the API server, which ignores all other formats.

The rules follow ``k8s.io/kube-openapi/pkg/validation/strfmt`` and its Go packages, which are looser here and stricter
there than Python. Groups and nested comments in mail addresses are not supported.
"""

from __future__ import annotations

import datetime
import functools
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final


def find_check(schema: Mapping[str, Any]) -> Callable[[str], object] | None:
    """Return a function that is true for valid texts; none if all texts are valid."""
    return _CHECKS.get(str(schema.get("format")).replace("-", ""))


def _is_date(text: str) -> bool:
    """Whether there is such a day, also in the year 0, a leap year that Python does not know."""
    known = f"2000{text[4:]}" if text.startswith("0000") else text
    try:
        return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None and bool(datetime.date.fromisoformat(known))
    except ValueError:
        return False


def _is_date_time(text: str) -> bool:
    """Whether it is a time; any character can be before the fraction, and anything after one more "T"."""
    date, _, rest = text.lower().partition("t")
    form = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(.\d+)?(z|[+-]\d\d:\d\d)"
    return _is_date(date) and re.fullmatch(form, rest.partition("t")[0], re.ASCII) is not None


def _is_duration(text: str) -> bool:
    """Whether Go accepts the text, or it contains any amount of a known unit."""
    amounts = re.findall(r"(?<!\d)(?=\d)0*+(\d*+)[ \t\n\f\r]*+([a-zµ]+)", text.lower(), re.ASCII)
    most = str(2**63 - 1)
    return all((len(number), number) <= (len(most), most) for number, _ in amounts) and (
        re.fullmatch(r"[+-]?(0|((\d++(\.\d*+)?|\.\d++)(ns|us|µs|μs|ms|s|m|h))+)", text, re.ASCII) is not None
        or any(re.fullmatch(_UNITS, unit) for _, unit in amounts)
    )


_UNITS: Final = r"(ns|[uµm]?s|m|hr?|d|wk?)|(nano|micro|milli|sec|min|hour|day|week).*"


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def _parse_old_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse an address; the server still accepts leading zeros in IPv4."""
    head, colon, tail = text.rpartition(":")
    return _parse_ip(f"{head}{colon}{re.sub('(?<![^.])0+(?=[0-9])', '', tail)}" if "." in tail else text)


def _is_cidr(text: str) -> bool:
    base, _, bits = text.partition("/")
    address = _parse_old_ip(base)
    return address is not None and bool(re.fullmatch("0*[0-9]{1,3}", bits)) and int(bits) <= address.max_prefixlen


def _is_email(text: str) -> bool:
    found = re.fullmatch(_MAIL, text)
    return found is not None and (found["ip"] is None or _parse_ip(found["ip"]) is not None)


_ATOM: Final = r"[!#-'*+\-/-9=?A-Z^-~\x80-\U0010ffff]"
_TEXT: Final = r"([\t !#-\[\]-~\x80-\U0010ffff]|\\[\t -~\x80-\U0010ffff])"
_MAIL: Final = (
    rf'[ \t]*+(?P<open>(("{_TEXT}*+"|({_ATOM}|\.)++)[ \t]*+)*+<)?+'  # the name before the address
    rf'[ \t]*+("{_TEXT}++"|{_ATOM}++(\.{_ATOM}++)*+)@[ \t]*+({_ATOM}++(\.{_ATOM}++)*+|\[(?P<ip>[!-~]*)\])'
    r"(?(open)>)[ \t]*+(\([^()\\]*+\)[ \t]*+)*+"
)


def _is_hostname(text: str) -> bool:
    """Whether it is a host name of Unicode; sizes are in bytes; without dots, only the second can be a dash."""
    is_short = len(text.encode()) <= 255 and all(len(label.encode()) <= 63 for label in text.split("."))
    digits = dict.fromkeys("0123456789", "0")
    shape = ({"L": "a", "S": "0"}.get(unicodedata.category(char)[0], digits.get(char, char)) for char in text)
    form = r"[a0](-?[a0]{0,62})?|([a0]([a0-]{0,61}[a0])?\.)+a{2,63}"
    return is_short and re.fullmatch(form, "".join(shape)) is not None


def _read_digits(text: str, others: str, form: str) -> list[int]:
    """Return the digits without the other characters, if they have this form; otherwise, digits that pass no test."""
    digits = re.sub(others, "", text, flags=re.ASCII)
    return [10 if digit == "X" else int(digit) for digit in digits] if re.fullmatch(form, digits, re.ASCII) else [1]


def _is_isbn10(text: str) -> bool:
    digits = _read_digits(text, r"[\s-]+", r"\d{9}[\dX]")
    return sum(place * digit for place, digit in enumerate(digits, 1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    digits = _read_digits(text, r"[\s-]+", r"\d{13}")
    return (sum(digits[::2]) + 3 * sum(digits[1::2])) % 10 == 0


def _is_card(text: str) -> bool:
    digits = _read_digits(text, r"\D+", _CARDS)
    return (sum(digits[::-2]) + sum(sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])) % 10 == 0


_CARDS: Final = (
    r"4\d{12}(\d{3})?|5[1-5]\d{14}|6(011|5\d\d)\d{12}|3[47]\d{13}|3(0[0-5]|[68]\d)\d{11}|(2131|1800|35\d{3})\d{11}"
)
_LABEL: Final = r"[a-z\d]([a-z\d-]*[a-z\d])?"
_BYTE: Final = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_PATTERNS: Final = {  # X is a hexadecimal digit
    "bsonobjectid": "X{24}",
    "byte": r"(?=.)([A-Za-z\d+/]{4})*+([A-Za-z\d+/]{2}==|[A-Za-z\d+/]{3}=)?",
    "hexcolor": "#?(X{3}){1,2}",
    "k8slongname": rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*",
    "k8sshortname": rf"(?=.{{1,63}}\Z){_LABEL}",
    "mac": r"XX([:-])XX(\1XX){4}((\1XX){2}((\1XX){12})?)?|XXXX(\.XXXX){2}(\.XXXX((\.XXXX){6})?)?",
    "password": "(?s:.*)",
    "rgbcolor": rf"rgb\({_BYTE},{_BYTE},{_BYTE}\)",
    "ssn": r"\d{3}[- ]?\d{2}[- ]?\d{4}",
    "uri": r"""(?sx)
        (?!.*[\x00-\x1f\x7f])
        (?:\*
        |[A-Za-z][A-Za-z\d+.\-]*:(?!/).*  # opaque
        |(?:(?=/)|[A-Za-z][A-Za-z\d+.\-]*:(?:(?!//)|//
            (?:(?:[\w\-.~!$&'()*+,;=:@]|%X{2})*@)?
            (?:\[[\dA-Fa-f:.]+(?:%25[^\]/?]+)?\]|(?:[\w\-.~!$&'()*+,;=<>"\x80-\U0010ffff]|%[89A-Fa-f]X|%25)*+)
            (?::\d*)?(?=[/?]|\Z)))
        (?:/(?:[^%?]|%X{2})*+)?(?:\?.*)?)
    """,
    "uuid": "X{8}-?X{4}-?X{4}-?X{4}-?X{12}",
    "uuid3": "X{8}-?X{4}-?3X{3}-?X{4}-?X{12}",
    "uuid4": "X{8}-?X{4}-?4X{3}-?[89abAB]X{3}-?X{12}",
    "uuid5": "X{8}-?X{4}-?5X{3}-?[89abAB]X{3}-?X{12}",
}
_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    **{
        name: functools.partial(re.fullmatch, form.replace("X", r"[\dA-Fa-f]"), flags=re.ASCII)
        for name, form in _PATTERNS.items()
    },
    "cidr": _is_cidr,
    "creditcard": _is_card,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": _is_email,
    "hostname": _is_hostname,
    "ipv4": lambda text: "." in text and _parse_old_ip(text),
    "ipv6": lambda text: ":" in text and _parse_ip(text),
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
}
