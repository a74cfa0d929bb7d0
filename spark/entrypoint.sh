#!/bin/bash
# Starts millpond's command, or what Spark's driver asks of its executors' pods: `executor`, with the rest in the
# environment.
set -euo pipefail
if [ "${1:-}" != executor ]; then exec millpond "$@"; fi

options=()
while IFS= read -r name; do options+=("${!name}"); done < <(compgen -v | grep -E '^SPARK_JAVA_OPT_[0-9]+$' | sort -V || true)
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" -Xms"$SPARK_EXECUTOR_MEMORY" -Xmx"$SPARK_EXECUTOR_MEMORY" \
  -cp "$SPARK_HOME/jars/*" org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
