"""HTTP: connections, requests, retries; bytes in, bytes out."""
