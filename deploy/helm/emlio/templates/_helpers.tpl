{{- define "emlio.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "emlio.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: daemon
{{- end }}

{{- define "emlio.labels" -}}
{{ include "emlio.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "emlio.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "emlio.check" -}}
{{- if not .Values.datasets }}{{ fail "datasets must name at least one dataset, such as --set datasets.imagenet=/data/imagenet" }}{{ end }}
{{- if not .Values.insecure }}
{{- if or (not .Values.keys.secret) (not .Values.keys.clients) }}{{ fail "keys.secret and keys.clients must name a Secret and a ConfigMap with keys (README.md says how to make them), or insecure must be true" }}{{ end }}
{{- end }}
{{- $ways := 0 }}
{{- if .Values.data.existingClaim }}{{ $ways = add1 $ways }}{{ end }}
{{- if .Values.data.hostPath }}{{ $ways = add1 $ways }}{{ end }}
{{- if .Values.data.perDaemon }}{{ $ways = add1 $ways }}{{ end }}
{{- if gt (int $ways) 1 }}{{ fail "data must have one of existingClaim, hostPath and perDaemon, got several" }}{{ end }}
{{- end }}
