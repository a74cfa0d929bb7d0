"""`millpond status`, `millpond tasks` and `millpond drain`: a running application, on this machine or on Kubernetes."""
