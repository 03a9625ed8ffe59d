"""What runs everything: startup, login, what to watch, supervision, shutdown."""
