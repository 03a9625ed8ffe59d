"""
Webhook servers & tunnels: how the API servers reach the operator with their admission reviews.

Every server is an async iterator over client configs, as in :class:`kopf.WebhookServerProtocol`. The files, from
the simplest to the most automatic:

- ``endpoint`` takes requests, and answers them; it knows HTTP and its dangers; ``listening`` opens the sockets for it.
- ``certificates`` are made, ``rotation`` replaces them in time, ``contexts`` put them into use;
  ``sources`` & ``secrets`` are where they come from.
- ``server`` puts all this together; ``local``, ``service`` are specialised servers; ``ngrok`` is a tunnel.
- ``detection`` finds out what kind of a cluster it is; ``auto`` chooses the server or the tunnel by that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The original framework has the servers here; see the room ``_legacy``."""
        from kopf._legacy.modules import get_former

        return get_former(__name__, name, stacklevel=2)
