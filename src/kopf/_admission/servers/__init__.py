"""
Webhook servers and tunnels, by which the API servers reach the operator with their admission reviews.

Every server is an async iterator over client configs, as in :class:`kopf.WebhookServerProtocol`. The files, from the
simplest to the most automatic:

- ``review_server`` handles HTTP requests within ``request_limits``.
- ``certificates`` makes certificates, ``rotation`` replaces them in time, and ``tls_contexts`` puts them into use.
  ``certificate_sources`` and ``service`` are their sources. ``tls_setup`` is the state of all this at some moment, and
  ``renewal`` goes from one state to the next one.
- ``webhook_server`` puts all this together. ``service`` is a server for pods, ``ngrok`` is a tunnel.
- ``local`` are the servers for local clusters, with the detection of these clusters. ``auto`` uses it to
  choose a server or a tunnel.
"""
