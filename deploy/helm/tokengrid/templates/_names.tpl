{{- define "tokengrid.fullname" -}}
{{- if contains "tokengrid" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-tokengrid" (.Release.Name | trunc 30) }}{{ end -}}
{{- end }}

{{/* Labels of one component: (dict "root" $ "component" "gateway" "model" "") */}}
{{- define "tokengrid.selector" -}}
app.kubernetes.io/name: tokengrid
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .model }}
tokengrid/model: {{ . }}
{{- end }}
{{- end }}

{{- define "tokengrid.labels" -}}
{{ include "tokengrid.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* The models by name; without any, the demo model. */}}
{{- define "tokengrid.models" -}}
{{- if .Values.models }}{{ toJson .Values.models }}
{{- else }}{"tinydemo": {"provider": "demo", "options": {"temperature": 0}, "flows": {"default": {}}}}{{ end -}}
{{- end }}
