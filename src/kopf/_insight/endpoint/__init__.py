"""The endpoint of the console: its server, its protection, and its client."""
