"""The only door to Kubernetes: ``http`` makes requests, ``auth`` brings credentials, ``resources`` knows the API."""
