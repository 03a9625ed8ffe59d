"""Identity: by which name the operator is known to the others."""

from __future__ import annotations

import datetime
import getpass
import os
import random
import socket
import string


def make_identity(*, manual: bool = False) -> str:
    """
    Decide how to call ourselves: as the pod if it is known, or by the user, the host, the time, and some randomness.

    Those who act by hand (``manual``) are only known by the user & host, so that they can undo what they have done.
    """
    pod = os.environ.get("POD_ID")
    if pod and not manual:  # it can be the same pod by hand, and it is in use by the operator itself
        return pod
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # containers often run as users without names
        user = str(os.getuid())
    origin = f"{user}@{socket.gethostname()}"
    if manual:
        return origin
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d%H%M%S")
    rnd = "".join(random.choices(string.ascii_lowercase + string.digits, k=3))
    return f"{origin}/{now}/{rnd}"
