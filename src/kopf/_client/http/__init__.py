"""HTTP: connections, requests, and retries, all in bytes."""
