"""Authentication: the sources of the credentials, and the vault that keeps them."""
