"""The test kit: operators in a test, with no cluster and no waiting."""
