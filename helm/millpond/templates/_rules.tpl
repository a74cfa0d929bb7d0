{{- /* The operator's rights in the namespaces that it serves. It uses each of them: tests/operating/test_rights.py compares them with the
API server's audit log. */ -}}
{{- define "millpond.servedRules" -}}
- apiGroups: [millpond.dev]
  resources: [streamapps]
  verbs: [get, list, watch, patch]
- apiGroups: [millpond.dev]
  resources: [streamapps/status]
  verbs: [patch]
- apiGroups: [millpond.dev]
  resources: [statebootstraps]
  verbs: [get, list, watch, create, delete]
- apiGroups: [millpond.dev]
  resources: [statebootstraps/status]
  verbs: [patch]
# Clusters with OwnerReferencesPermissionEnforcement require this to create objects with these owners.
- apiGroups: [millpond.dev]
  resources: [streamapps/finalizers, statebootstraps/finalizers]
  verbs: [update]
- apiGroups: [millpond.dev]
  resources: [streamassignments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [controllerrevisions]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# The account of a snapshot's Job may report its progress, and manage its executors' pods. The operator can grant only
# rights that it has itself, and the role below.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, create, patch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [{{ ternary "clusterroles" "roles" .Values.rbac.clusterRights }}]
  resourceNames: [{{ include "millpond.snapshotDriver" . }}]
  verbs: [bind]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [list, watch, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
{{- end -}}

{{- define "millpond.snapshotDriverRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, deletecollection]
{{- end -}}

{{- define "millpond.ownRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "millpond.lease" . }}]
  verbs: [get, update]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [create]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  resourceNames: [{{ include "millpond.coordinator" . }}, {{ include "millpond.console" . }}]
  verbs: [get, patch, delete]
# Up to Kubernetes 1.34, the API server's proxy finds the console by Endpoints.
- apiGroups: [""]
  resources: [endpoints]
  verbs: [create]
- apiGroups: [""]
  resources: [endpoints]
  resourceNames: [{{ include "millpond.console" . }}]
  verbs: [get, patch]
{{- if eq .Values.certificates.source "managed" }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "millpond.certificateSecret" . }}]
  verbs: [{{ eq .Values.certificates.source "managed" | ternary "get, update" "get" }}]
{{- end -}}

{{- /* A binding to the operator's account: (list context kind name namespace roleKind role). */ -}}
{{- define "millpond.binding" -}}
{{- $context := index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 1 }}
metadata:
  {{- include "millpond.metadataIn" (list $context (index . 2) (index . 3)) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 4 }}
  name: {{ index . 5 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "millpond.serviceAccount" $context }}
    namespace: {{ $context.Release.Namespace }}
{{- end -}}
