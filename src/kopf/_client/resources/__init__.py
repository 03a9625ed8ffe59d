"""Resources: their discovery in the cluster, and listing, watching, and patching of their objects."""
