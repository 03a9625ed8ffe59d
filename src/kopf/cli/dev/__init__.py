"""``kopf dev``: an operator with its local cluster, reloaded as its files change; what the console can edit there."""
