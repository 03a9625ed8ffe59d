"""``kopf demo``: a show of an operator on a local cluster; nothing else is needed."""
