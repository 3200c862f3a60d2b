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
{{- range $name, $place := .Values.datasets }}
{{- if and (hasPrefix (printf "%s/" $.Values.data.path) (printf "%s/" $place)) (eq (int $ways) 0) }}{{ fail (printf "datasets.%s lies in the volume at %s, so data.existingClaim, data.hostPath or data.perDaemon must name one" $name $.Values.data.path) }}{{ end }}
{{- end }}
{{- if .Values.job.enabled }}
{{- if not (hasKey .Values.datasets .Values.job.dataset) }}{{ fail (printf "job.dataset must be one of datasets (%s), got %q" (keys .Values.datasets | sortAlpha | join ", ") .Values.job.dataset) }}{{ end }}
{{- if and (not .Values.insecure) (not .Values.job.keysSecret) }}{{ fail "job.keysSecret must name a Secret with the training host's secret.key and daemons: the daemons require keys" }}{{ end }}
{{- end }}
{{- end }}
