{{- /* Environment variables of the operator. Only those that differ from its defaults. */ -}}
{{- define "millpond.settings" -}}
{{- $found := list -}}
{{- range .Files.Get "files/operator-settings.yaml" | fromYamlArray -}}
{{- $value := $.Values.operator -}}
{{- range splitList "." .value -}}{{- $value = index $value . -}}{{- end -}}
{{- if kindIs "invalid" $value -}}
{{- $value = "" -}}
{{- else if kindIs "slice" $value -}}
{{- $value = join "," $value -}}
{{- else if kindIs "map" $value -}}
{{- $value = empty $value | ternary "" (toJson $value) -}}
{{- else if kindIs "float64" $value -}}
{{- $value = int64 $value -}}
{{- end -}}
{{- if ne (toString $value) (toString .default) -}}
{{- $found = append $found (dict "name" (print "MILLPOND_OPERATOR_" .setting) "value" (toString $value)) -}}
{{- end -}}
{{- end -}}
{{- $names := list
  (list "COORDINATOR_SERVICE" (include "millpond.coordinator" .) "millpond-coordinator")
  (list "CONSOLE_SERVICE" (include "millpond.console" .) "millpond-console")
  (list "SNAPSHOT_DRIVER_ROLE" (include "millpond.snapshotDriverRole" .) "millpond-snapshot-driver")
  (list "LEASE_NAME" (include "millpond.lease" .) "millpond-operator")
  (list "CERTIFICATE_SECRET" (include "millpond.certificateSecret" .) "millpond-coordinator-tls")
  (list "CERTIFICATE_SOURCE" (eq .Values.certificates.source "managed" | ternary "managed" "secret") "managed")
  (list "TOKEN_VERIFICATION" (.Values.rbac.clusterRights | ternary "review" "keys") "review")
  (list "WATCH_NAMESPACES" (join "," .Values.watchNamespaces) "")
-}}
{{- range $names -}}
{{- if ne (index . 1) (index . 2) -}}
{{- $found = append $found (dict "name" (print "MILLPOND_OPERATOR_" (index . 0)) "value" (index . 1)) -}}
{{- end -}}
{{- end -}}
{{- with $found }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "millpond.snapshotDriverRole" -}}
{{- if include "millpond.namespacedRights" . }}Role/{{ end }}{{ include "millpond.snapshotDriver" . -}}
{{- end -}}
