{{- /* The beginning of all names: short enough for every suffix. */ -}}
{{- define "millpond.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "millpond.operator" -}}{{ include "millpond.fullname" . }}-operator{{- end -}}
{{- define "millpond.coordinator" -}}{{ include "millpond.fullname" . }}-coordinator{{- end -}}
{{- define "millpond.console" -}}{{ include "millpond.fullname" . }}-console{{- end -}}
{{- define "millpond.snapshotDriver" -}}{{ include "millpond.fullname" . }}-snapshot-driver{{- end -}}
{{- define "millpond.lease" -}}{{ .Values.operator.lease.name | default (include "millpond.operator" .) }}{{- end -}}
{{- define "millpond.certificateSecret" -}}
{{ .Values.certificates.secretName | default (printf "%s-tls" (include "millpond.coordinator" .)) }}
{{- end -}}
{{- define "millpond.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "millpond.operator" .) }}
{{- end -}}

{{- /* Labels that identify the operator's pods. They can never change; NetworkPolicies of workers know the first one. */ -}}
{{- define "millpond.selector" -}}
app.kubernetes.io/name: millpond-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "millpond.labels" -}}
{{ include "millpond.selector" . }}
app.kubernetes.io/part-of: millpond
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The metadata of a namespaced object: (list context name). */ -}}
{{- define "millpond.metadata" -}}
{{- $context := index . 0 -}}
name: {{ index . 1 }}
namespace: {{ $context.Release.Namespace }}
labels:
  {{- include "millpond.labels" $context | nindent 2 }}
{{- with $context.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The metadata of an object in another namespace, or in none: (list context name namespace). */ -}}
{{- define "millpond.metadataIn" -}}
{{- $context := index . 0 -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "millpond.labels" $context | nindent 2 }}
{{- with $context.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The metadata of a hook: (list context name namespace hook weight deletePolicy). */ -}}
{{- define "millpond.hookMetadata" -}}
{{- $context := index . 0 -}}
name: {{ index . 1 }}
{{- with index . 2 }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "millpond.labels" $context | nindent 2 }}
annotations:
  helm.sh/hook: {{ index . 3 }}
  helm.sh/hook-weight: {{ index . 4 | quote }}
  helm.sh/hook-delete-policy: {{ index . 5 }}
{{- end -}}

{{- /* The reference of an image: (list image defaultTag). */ -}}
{{- define "millpond.image" -}}
{{- $image := index . 0 -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ $image.repository }}
{{- if $image.digest }}{{ with $image.tag }}:{{ . }}{{ end }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 1) }}{{ end -}}
{{- end -}}

{{- define "millpond.operatorImage" -}}{{ include "millpond.image" (list .Values.image .Chart.AppVersion) }}{{- end -}}

{{- define "millpond.podSecurityContext" -}}
{{- $given := dict -}}
{{- range $key, $value := .Values.podSecurityContext -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $given $key $value -}}{{- end -}}
{{- end -}}
{{ toYaml $given }}
{{- end -}}

{{- /* A duration in seconds. */ -}}
{{- define "millpond.seconds" -}}
{{- $factors := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- mulf (trimSuffix $unit . | float64) (get $factors $unit) -}}
{{- end -}}

{{- /* Whether rights are Roles in each served namespace; "" means no. */ -}}
{{- define "millpond.namespacedRights" -}}{{ if not .Values.rbac.clusterRights }}true{{ end }}{{- end -}}

{{- /* Refuse values that contradict each other, before anything is installed. */ -}}
{{- define "millpond.check" -}}
{{- $v := .Values -}}
{{- if not (regexMatch "^[a-z]" (include "millpond.fullname" .)) -}}
{{- fail (printf "the names of all objects begin with %s, and names of Services must begin with a letter: set fullnameOverride, or give the release another name." (include "millpond.fullname" .)) -}}
{{- end -}}
{{- range $path, $labels := dict "commonLabels" $v.commonLabels "podLabels" $v.podLabels -}}
{{- range $name := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- if hasKey ($labels | default dict) $name -}}
{{- fail (printf "%s has %s, which the chart sets itself, and by which its objects are found: remove it." $path $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $v.crds.install -}}
{{- $deployed := lookup "apps/v1" "Deployment" .Release.Namespace (include "millpond.operator" .) | default dict -}}
{{- if eq (dig "metadata" "annotations" "millpond.dev/crds-keep" "" $deployed) "false" -}}
{{- fail "crds.install is false, and the release has definitions that it does not keep (crds.keep: false): Helm would delete them, and with them all StreamApps. Upgrade with crds.install: true and crds.keep: true first; after that crds.install can be false." -}}
{{- end -}}
{{- end -}}
{{- if and (not $v.rbac.clusterRights) (empty $v.watchNamespaces) -}}
{{- fail "watchNamespaces is empty, which means all namespaces, and rbac.clusterRights is false: the operator would have no rights there. Name the namespaces in watchNamespaces, or set rbac.clusterRights to true." -}}
{{- end -}}
{{- if and $v.admissionPolicy.create (not $v.rbac.clusterRights) -}}
{{- fail "admissionPolicy.create needs rbac.clusterRights: a ValidatingAdmissionPolicy is an object of the whole cluster. Set admissionPolicy.create to false, or rbac.clusterRights to true." -}}
{{- end -}}
{{- if and (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: name an existing service account. The chart does not use the account `default`, since all pods of the namespace would have the operator's rights." -}}
{{- end -}}
{{- if and (eq $v.certificates.source "secret") (not $v.certificates.secretName) -}}
{{- fail "certificates.source is secret and certificates.secretName is empty: name the Secret with tls.crt, tls.key and ca.crt." -}}
{{- end -}}
{{- if and (eq $v.certificates.source "certManager") (not $v.certificates.certManager.issuerRef.name) -}}
{{- fail "certificates.source is certManager and certificates.certManager.issuerRef.name is empty: name cert-manager's issuer." -}}
{{- end -}}
{{- if and (ne $v.certificates.source "certManager") $v.certificates.certManager.issuerRef.name -}}
{{- fail (printf "certificates.certManager.issuerRef.name is set and certificates.source is %s: set certificates.source to certManager, or remove the issuer." $v.certificates.source) -}}
{{- end -}}
{{- $certificate := $v.certificates.certManager -}}
{{- if le (include "millpond.seconds" $certificate.duration | float64) (include "millpond.seconds" $certificate.renewBefore | float64) -}}
{{- fail "certificates.certManager.renewBefore must be shorter than certificates.certManager.duration: a certificate would be renewed all the time." -}}
{{- end -}}
{{- $budget := $v.podDisruptionBudget -}}
{{- if $budget.create -}}
{{- $hasMin := not (kindIs "invalid" $budget.minAvailable) -}}
{{- $hasMax := not (kindIs "invalid" $budget.maxUnavailable) -}}
{{- if eq $hasMin $hasMax -}}
{{- fail "podDisruptionBudget needs exactly one of minAvailable and maxUnavailable: set the other one to null." -}}
{{- end -}}
{{- if and $hasMin (not (kindIs "string" $budget.minAvailable)) -}}
{{- if ge (int $budget.minAvailable) (int $v.replicas) -}}
{{- fail (printf "podDisruptionBudget.minAvailable is %d with %d replicas: no pod could be evicted, so no node could be drained. Set it below replicas, or use maxUnavailable: 1." (int $budget.minAvailable) (int $v.replicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $lease := $v.operator.lease -}}
{{- $retry := include "millpond.seconds" $lease.retryPeriod | float64 -}}
{{- $renew := include "millpond.seconds" $lease.renewDeadline | float64 -}}
{{- $duration := include "millpond.seconds" $lease.duration | float64 -}}
{{- if not (and (lt $retry $renew) (lt $renew $duration)) -}}
{{- fail "operator.lease.retryPeriod must be shorter than renewDeadline, which must be shorter than duration: set, for example, 2s, 10s and 15s." -}}
{{- end -}}
{{- $monitor := $v.monitoring.podMonitors -}}
{{- if gt (include "millpond.seconds" $monitor.scrapeTimeout | float64) (include "millpond.seconds" $monitor.interval | float64) -}}
{{- fail "monitoring.podMonitors.scrapeTimeout must not be longer than monitoring.podMonitors.interval: Prometheus refuses that." -}}
{{- end -}}
{{- if and $v.networkPolicy.egress.restrict (empty $v.networkPolicy.apiServerCIDRs) -}}
{{- fail "networkPolicy.egress.restrict is true and networkPolicy.apiServerCIDRs is empty: the operator could not reach the API server. Name the API server's addresses: kubectl get endpointslices -n default kubernetes" -}}
{{- end -}}
{{- if and (empty $v.networkPolicy.scrape.namespaceLabels) $v.networkPolicy.scrape.podLabels -}}
{{- fail "networkPolicy.scrape.podLabels is set and networkPolicy.scrape.namespaceLabels is empty: name the namespaces of these pods." -}}
{{- end -}}
{{- if and (empty $v.networkPolicy.query.namespaceLabels) $v.networkPolicy.query.podLabels -}}
{{- fail "networkPolicy.query.podLabels is set and networkPolicy.query.namespaceLabels is empty: name the namespaces of these pods." -}}
{{- end -}}
{{- if and $v.test.credentialsSecret (not $v.test.bootstrapServers) -}}
{{- fail "test.credentialsSecret is set and test.bootstrapServers is empty: name the brokers." -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- if hasPrefix "MILLPOND_OPERATOR_" .name -}}
{{- fail (printf "extraEnv has %s, a setting of the operator: use the values below `operator`, or extraArgs." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
