"""The coordinator inside the operator: applications, endpoint, certificates, and the authentication of workers."""
