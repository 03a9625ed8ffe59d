"""
Packaging: what an operator must be permitted to do, and the manifests with which it is deployed.

``rules`` are found out from the handlers, ``roles`` and ``manifests`` are the objects, ``formats`` the files with them.
"""
