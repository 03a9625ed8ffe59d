"""
Data: the versioned store, which knows nothing of Kubernetes, and its copy on disk.
"""
