"""
Durations as Go writes them: ``1h30m``, ``1.5s``, ``300ms``.
"""
from __future__ import annotations

import json
import re
from typing import Final

_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(?P<number>\d+\.?\d*|\.\d+)(?P<unit>[^\d.]*)")


def parse_duration(text: str) -> float:
    """Give the duration in seconds, or raise `ValueError` with the message of Go's `time.ParseDuration`."""
    shown = json.dumps(text, ensure_ascii=False)
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return 0.0
    seconds, pos = 0.0, 0
    while pos < len(unsigned) or not unsigned:
        part = _PART.match(unsigned, pos)
        if part is None:
            raise ValueError(f"time: invalid duration {shown}")
        if not part["unit"]:
            raise ValueError(f"time: missing unit in duration {shown}")
        if part["unit"] not in _SECONDS:
            raise ValueError(f"time: unknown unit {json.dumps(part['unit'], ensure_ascii=False)} in duration {shown}")
        seconds += float(part["number"]) * _SECONDS[part["unit"]]
        pos = part.end()
    return -seconds if text.startswith("-") else seconds
