"""The coordinators of all applications inside the operator: addresses, certificates, and who may speak."""
