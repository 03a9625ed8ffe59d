"""
When to repeat a failed request: how long to wait, and when to give up.

``Retry-After`` is of RFC 9110, section 10.2.3: a number of seconds or a date. Kubernetes sends it with 429
("Priority and Fairness", etcd overload) and with some of 5xx.
"""

from __future__ import annotations

import datetime
import math
import random

from kopf._client.errors import APIError, APINetworkError, APITooManyRequestsError

MIN_FORCED_DELAY = 1.0
"""
The shortest pause, in seconds, when the server keeps asking to slow down and all own delays are used up.
"""

MAX_FORCED_DELAY = 3600.0
"""
The longest pause, in seconds, that the server can ask for: aggregated APIs and proxies can say anything, and nothing of
the resource would be handled for years.
"""

MAX_JITTER = 0.1
"""
By how much the pauses are made longer by random, as a share of them: those who have failed together, e.g. the patches
of many objects when the server was restarted, do not come back together.
"""


def add_jitter(delay: float) -> float:
    """Make the pause slightly longer, never shorter."""
    return delay * random.uniform(1, 1 + MAX_JITTER)


def get_delay(error: APIError | APINetworkError, backoff: float | None, *, enforce_retry_after: bool) -> float | None:
    """
    Tell in how many seconds to repeat the failed request; ``None`` to give up.

    ``backoff`` is the next delay of the configured ones, ``None`` if they are used up. The server's ``Retry-After``
    (of an hour at most) is the minimum of it; with ``enforce_retry_after``, it is used as is. A server that answers
    429 with ``Retry-After`` is alive and says when to come back, so it is asked again for as long as it answers so.
    """
    retry_after = parse_retry_after(error.headers.get("Retry-After")) if isinstance(error, APIError) else None
    retry_after = None if retry_after is None else min(retry_after, MAX_FORCED_DELAY)
    if backoff is None:
        is_throttled = isinstance(error, APITooManyRequestsError) and retry_after is not None
        return max(retry_after or 0, MIN_FORCED_DELAY) if is_throttled else None
    if retry_after is None:
        return backoff
    return retry_after if enforce_retry_after else max(backoff, retry_after)


def parse_retry_after(value: str | None) -> float | None:
    """Get the number of seconds (0 for dates in the past); ``None`` if the header is absent or malformed."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _parse_date(value)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _parse_date(value: str) -> float | None:
    import email.utils  # API servers send numbers

    try:
        date = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):  # the latter is for numbers with dozens of digits
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())
