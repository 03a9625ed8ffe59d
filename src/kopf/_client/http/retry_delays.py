"""
Retries of failed requests: the pauses before them, and the time to give up.

For ``Retry-After``, see RFC 9110, section 10.2.3: it is a number of seconds or a date. Kubernetes sends it with 429
("Priority and Fairness", etcd overload) and with some 5xx errors.
"""

from __future__ import annotations

import datetime
import math
import random

from kopf._client.errors import APIError, APINetworkError, APITooManyRequestsError

MIN_FORCED_DELAY = 1.0
"""
The shortest pause, in seconds, if the server keeps asking to slow down after all configured delays.
"""

MAX_FORCED_DELAY = 3600.0
"""
The longest pause, in seconds, that a server can demand. Aggregated APIs and proxies can say anything, even years.
"""

MAX_JITTER = 0.1
"""
The largest random extension of a pause, as a fraction. So, requests that failed together, e.g. at a restart of the
server, are not repeated together.
"""


def add_jitter(delay: float) -> float:
    """Make the pause (in seconds) slightly longer, never shorter."""
    return delay * random.uniform(1, 1 + MAX_JITTER)


def get_delay(error: APIError | APINetworkError, backoff: float | None, *, enforce_retry_after: bool) -> float | None:
    """
    Get the pause before the next attempt, in seconds; ``None`` means to give up.

    ``backoff`` is the next configured delay, ``None`` if all are used up. The ``Retry-After`` of the server (up to an
    hour) is its lower limit; with ``enforce_retry_after``, it replaces the delay. A server that sends 429 with
    ``Retry-After`` is alive, so its requests are repeated as long as it does that.
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
    """Get the pause in seconds, 0 for past dates; ``None`` if the header is absent or malformed."""
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
    except (ValueError, OverflowError):  # the latter for numbers with dozens of digits
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=datetime.UTC)
    return max(0.0, (date - datetime.datetime.now(datetime.UTC)).total_seconds())
