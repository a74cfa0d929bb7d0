"""StreamApps on a Kubernetes cluster, for the commands with `--kubernetes`: connection, data and failures."""
