"""Identity: the name of this operator for its peers."""

from __future__ import annotations

import datetime
import getpass
import os
import random
import socket
import string


def make_identity(*, manual: bool = False) -> str:
    """
    Make the identity: the name of the pod, if known, or the user, the host, the time, and some randomness.

    With ``manual``, for commands, it is only the user and the host, so that a later command can undo an earlier one.
    """
    pod = os.environ.get("POD_ID")
    if pod and not manual:  # a command can run in the pod of the operator, which uses this identity
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
