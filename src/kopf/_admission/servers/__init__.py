"""
Webhook servers & tunnels: how the API servers reach the operator with their admission reviews.

Every server is an async iterator over client configs, as in :class:`kopf.WebhookServerProtocol`. The files, from
the simplest to the most automatic:

- ``review_server`` takes requests, and answers them, within ``request_limits``; it knows HTTP and its dangers.
- ``certificates`` are made, ``rotation`` replaces them in time, ``tls_contexts`` put them into use;
  ``sources`` & ``service`` are where they come from; ``tls_setup`` is all of it at some moment, and ``renewal`` goes
  from one such moment to the next one.
- ``webhook_server`` puts all this together; ``service`` is a specialised server; ``ngrok`` is a tunnel.
- ``local`` are the servers for local clusters, and how these are recognised; ``auto`` chooses the server or the tunnel
  by that.
"""
