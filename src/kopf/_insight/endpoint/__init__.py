"""The endpoint of the console: who may look at the operator over HTTP, and what is answered under which path."""
