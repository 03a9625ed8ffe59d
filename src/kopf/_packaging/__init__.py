"""
Packaging: the permissions that an operator needs, and the manifests that deploy it.

``rules`` are inferred from the handlers, ``manifests`` are the objects, ``formats`` the files with them.
"""
