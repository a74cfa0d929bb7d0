#!/bin/bash
# Formats the data directory if it is new, as a Kafka cluster of its own, and becomes the broker.
set -euo pipefail

settings=/etc/kafka/server.properties
java=(java "-Xmx${HEAP:-384m}" -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData -Djava.awt.headless=true
  -Dorg.slf4j.simpleLogger.showDateTime=true "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss,SSS"
  -cp "/opt/kafka/libs/*")

[ -e data/meta.properties ] ||
  "${java[@]}" kafka.tools.StorageTool format --cluster-id "$("${java[@]}" kafka.tools.StorageTool random-uuid)" \
    --config "$settings"
exec "${java[@]}" kafka.Kafka "$settings"
