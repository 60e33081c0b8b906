{{/*
A Deployment, with its PodDisruptionBudget:
(dict "root" $ "component" "model" "model" "gpt" "name" "model-gpt" "settings" VALUES "file" KEY "text" TEXT
      "command" (list ...) "ports" (dict NAME PORT) "live" (list PATH PORT-NAME) "ready" (list PATH PORT-NAME)
      "grace" SECONDS "preStop" SECONDS "scaled" BOOL "claim" NAME)
*/}}
{{- define "tokengrid.workload" -}}
{{- $root := .root -}}
{{- $settings := .settings -}}
{{- $full := printf "%s-%s" (include "tokengrid.fullname" $root) .name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $full }}
  labels: {{- include "tokengrid.labels" . | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ $settings.replicas | default 1 }}
  {{- end }}
  {{- if .claim }}
  strategy: {type: Recreate}
  {{- else }}
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  {{- end }}
  selector:
    matchLabels: {{- include "tokengrid.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "tokengrid.labels" . | nindent 8 }}
      annotations:
        kubectl.kubernetes.io/default-container: tokengrid
        {{- if $root.Values.restartOnConfigChange }}
        checksum/config: {{ .text | sha256sum }}
        {{- end }}
        {{- with $settings.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with $root.Values.serviceAccountName }}
      serviceAccountName: {{ . }}
      {{- end }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      terminationGracePeriodSeconds: {{ .grace }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "tokengrid.selector" . | nindent 14 }}
      containers:
        - name: tokengrid
          image: {{ printf "%s:%s" $root.Values.image.repository ($root.Values.image.tag | default $root.Chart.AppVersion) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          command: {{- toYaml .command | nindent 12 }}
          {{- if or $settings.secretEnv $settings.env }}
          env:
            {{- range $variable, $secret := $settings.secretEnv }}
            - name: {{ $variable }}
              valueFrom:
                secretKeyRef: {name: {{ $secret.name | quote }}, key: {{ $secret.key | quote }}}
            {{- end }}
            {{- range $variable, $value := $settings.env }}
            - name: {{ $variable }}
              value: {{ $value | quote }}
            {{- end }}
          {{- end }}
          ports:
            {{- range $name, $port := .ports }}
            - {name: {{ $name }}, containerPort: {{ $port }}}
            {{- end }}
          livenessProbe:
            httpGet: {path: {{ index .live 0 }}, port: {{ index .live 1 }}}
            initialDelaySeconds: 10
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: {{ index .ready 0 }}, port: {{ index .ready 1 }}}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- with .preStop }}
          lifecycle:
            preStop:
              exec: {command: [sleep, {{ . | quote }}]}
          {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
          resources: {{- toYaml $settings.resources | nindent 12 }}
          volumeMounts:
            - {name: config, mountPath: /etc/tokengrid, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            - {name: home, mountPath: /home/tokengrid}
            {{- if .claim }}
            - {name: data, mountPath: /var/lib/tokengrid}
            {{- end }}
            {{- if $root.Values.bus.tokenSecret }}
            - {name: bus-token, mountPath: /run/secrets/tokengrid/bus, readOnly: true}
            {{- end }}
            {{- if $root.Values.bus.trustSecret }}
            - {name: bus-trust, mountPath: /run/secrets/tokengrid/trust, readOnly: true}
            {{- end }}
            {{- with $settings.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        # A folder, not a single file: edits of the ConfigMap reach it, and the process follows them.
        - name: config
          configMap:
            name: {{ include "tokengrid.fullname" $root }}
            items: [{key: {{ .file }}, path: {{ .path | default "tokengrid.toml" }}}]
        - {name: tmp, emptyDir: {}}
        {{- with $settings.homeClaim }}
        - {name: home, persistentVolumeClaim: {claimName: {{ . }}}}
        {{- else }}
        - {name: home, emptyDir: {}}
        {{- end }}
        {{- with .claim }}
        - {name: data, persistentVolumeClaim: {claimName: {{ . }}}}
        {{- end }}
        {{- with $root.Values.bus.tokenSecret }}
        - {name: bus-token, secret: {secretName: {{ .name | quote }}, items: [{key: {{ .key | quote }}, path: token}]}}
        {{- end }}
        {{- with $root.Values.bus.trustSecret }}
        - {name: bus-trust, secret: {secretName: {{ .name | quote }}, items: [{key: {{ .key | quote }}, path: ca.crt}]}}
        {{- end }}
        {{- with $settings.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- range $field := list "nodeSelector" "tolerations" "affinity" }}
      {{- with index $settings $field }}
      {{ $field }}: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- end }}
{{- if $root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $full }}
  labels: {{- include "tokengrid.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ $root.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {{- include "tokengrid.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{/* tg-serve of one part, with its metrics: (dict "root" $ "part" "prompt"). */}}
{{- define "tokengrid.command" -}}
{{- $v := .root.Values -}}
{{- $made := list "tg-serve" "--config" "/etc/tokengrid/tokengrid.toml" "--only" .part "--host" $v.host "--metrics-port" "8000" "--log-format" "json" "--log-level" $v.logLevel -}}
{{- if eq .part "gateway" }}{{ $made = concat $made (list "--port" "8888") }}{{ end -}}
{{- toJson $made -}}
{{- end }}

{{/* What compose gives too: some seconds more than the process takes to drain and to close its connections. */}}
{{- define "tokengrid.grace" -}}
{{- add (ceil (float64 .Values.drainSeconds)) 20 -}}
{{- end }}
