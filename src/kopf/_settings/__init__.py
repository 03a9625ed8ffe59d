"""How an operator is configured: settings, persistence storages, logging."""
