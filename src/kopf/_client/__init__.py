"""The client of Kubernetes: ``http`` makes requests, ``auth`` finds credentials, ``resources`` knows the API."""
