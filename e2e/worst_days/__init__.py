"""The worst days of an application: nodes, API server, broker and operator fail under load, one after the other."""
