"""How an operator is configured: plain data, with production defaults."""
