"""The only door to Kubernetes: credentials, connections, retries, discovery, listing & watching, patching."""
