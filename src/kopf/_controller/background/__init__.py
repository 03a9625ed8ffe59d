"""Background: the daemons and timers that run as long as their object exists."""
