"""
Schedules of cron jobs: five fields, with lists, ranges, steps, names, and the usual shortcuts.
"""

from __future__ import annotations

import datetime
from typing import Final

_SHORTCUTS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LIMITS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_HORIZON: Final = 366 * 5


class Schedule:
    """The moments of a schedule, or `ValueError` if it is not one."""

    def __init__(self, text: str) -> None:
        fields = _SHORTCUTS.get(text.strip(), text).split()
        if len(fields) != 5:
            raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
        names: tuple[tuple[str, ...], ...] = ((), (), (), _MONTHS, _DAYS)
        self._minutes, self._hours, self._days, self._months, weekdays = (
            _parse(field, *limits, known) for field, limits, known in zip(fields, _LIMITS, names, strict=True)
        )
        self._weekdays = {day % 7 for day in weekdays}
        # If both days are limited, it is enough for one of them to fit: the rule of cron.
        self._any_day = not (fields[2].startswith(("*", "?")) or fields[4].startswith(("*", "?")))

    def after(self, moment: datetime.datetime) -> datetime.datetime | None:
        """Return the first moment after the given one; none if there is none in the next five years."""
        start = moment.replace(second=0, microsecond=0) + datetime.timedelta(minutes=1)
        for ahead in range(_HORIZON):
            day = (start + datetime.timedelta(days=ahead)).date()
            if not self._fits(day):
                continue
            for hour in sorted(self._hours):
                for minute in sorted(self._minutes):
                    found = datetime.datetime(day.year, day.month, day.day, hour, minute, tzinfo=start.tzinfo)
                    if found >= start:
                        return found
        return None

    def _fits(self, day: datetime.date) -> bool:
        by_month, by_week = day.day in self._days, day.isoweekday() % 7 in self._weekdays
        return day.month in self._months and (by_month or by_week if self._any_day else by_month and by_week)


def _parse(field: str, low: int, high: int, names: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for item in field.split(","):
        span, _, step = item.partition("/")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            begin, end = low, high
        else:
            begin = _number(first, low, names)
            end = _number(last, low, names) if dash else (high if step else begin)
        if not low <= begin <= end <= high or (step and not (step.isdigit() and int(step))):
            raise ValueError(f"wrong field of a schedule: {field}")
        found.update(range(begin, end + 1, int(step or 1)))
    return found


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + (1 if low == 1 else 0)
    return int(text)
