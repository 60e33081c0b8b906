{{/* Values -> TOML. Helm's own toToml writes whole numbers with a fraction, which the configuration refuses. */}}
{{- define "tokengrid.toml.key" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end }}

{{- define "tokengrid.toml.value" -}}
{{- if kindIs "map" . -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- $pairs = append $pairs (printf "%s = %s" (include "tokengrid.toml.key" $key) (include "tokengrid.toml.value" $value)) -}}
{{- end -}}
{ {{- $pairs | join ", " -}} }
{{- else if kindIs "slice" . -}}
{{- $values := list -}}
{{- range . }}{{ $values = append $values (include "tokengrid.toml.value" .) }}{{ end -}}
[{{ $values | join ", " }}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* (dict "table" TABLE "path" "" ): first the values, then the tables below. */}}
{{- define "tokengrid.toml" -}}
{{- $path := .path -}}
{{- $tables := dict -}}
{{- $own := not .table -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value }}{{ $_ := set $tables $key $value }}{{ else if not (kindIs "invalid" $value) }}{{ $own = true }}{{ end -}}
{{- end -}}
{{- if and $path $own }}
[{{ $path }}]
{{ end -}}
{{- range $key, $value := .table -}}
{{- if not (or (kindIs "map" $value) (kindIs "invalid" $value)) -}}
{{ include "tokengrid.toml.key" $key }} = {{ include "tokengrid.toml.value" $value }}
{{ end -}}
{{- end -}}
{{- range $key, $value := $tables -}}
{{- $name := include "tokengrid.toml.key" $key -}}
{{- include "tokengrid.toml" (dict "table" $value "path" (ternary (printf "%s.%s" $path $name) $name (ne $path ""))) -}}
{{- end -}}
{{- end }}

{{/* The table [bus]. */}}
{{- define "tokengrid.bus" -}}
{{- $options := dict -}}
{{- if .Values.bus.tokenSecret }}{{ $_ := set $options "token_file" "/run/secrets/tokengrid/bus/token" }}{{ end -}}
{{- if .Values.bus.trustSecret }}{{ $_ := set $options "trust_certs" "/run/secrets/tokengrid/trust/ca.crt" }}{{ end -}}
{{- $bus := dict "url" (required "bus.url names the broker: set it" .Values.bus.url) "namespace" .Values.bus.namespace -}}
{{- if $options }}{{ $_ := set $bus "options" $options }}{{ end -}}
{{- toJson $bus -}}
{{- end }}

{{/* One model's tables: (dict "root" $ "name" NAME "model" MODEL). */}}
{{- define "tokengrid.model" -}}
{{- $name := .name -}}
{{- $flows := dict -}}
{{- range $flow, $fields := .model.flows -}}
{{- $_ := set $flows $flow (dict "text-completion" (merge (dict "model" $name) ($fields | default dict))) -}}
{{- end -}}
{{- $table := pick .model "provider" "options" "on_demand" "unload_after" "lazy" "queue" -}}
{{- toJson (dict "models" (dict $name $table) "flows" $flows) -}}
{{- end }}

{{/* tokengrid.toml of all processes but those of models. */}}
{{- define "tokengrid.shared" -}}
{{- $made := dict "bus" (include "tokengrid.bus" . | fromJson) -}}
{{- $bound := dict -}}
{{- range $name, $model := include "tokengrid.models" . | fromJson -}}
{{- range $flow, $_ := $model.flows -}}
{{- if hasKey $bound $flow }}{{ fail (printf "models.%s.flows and models.%s.flows both have %s: a flow has one model" (get $bound $flow) $name $flow) }}{{ end -}}
{{- $_ := set $bound $flow $name -}}
{{- end -}}
{{- $made = mustMergeOverwrite $made (include "tokengrid.model" (dict "name" $name "model" $model) | fromJson) -}}
{{- end -}}
{{- if .Values.usage.enabled -}}
{{- $made = mustMergeOverwrite $made (dict "flows" (dict .Values.usage.flow (dict "usage" (dict "database" (.Values.usage.database | default "/var/lib/tokengrid/usage.db"))))) -}}
{{- end -}}
{{- $config := .Values.config | default dict -}}
{{- if kindIs "string" $config -}}
{{- $drain := regexFind "\\bdrain\\s*=\\s*[0-9.]+" .Values.config | regexFind "[0-9.]+$" | default "10" -}}
{{- if ne (float64 $drain) (float64 .Values.drainSeconds) }}{{ fail (printf "config has gateway.drain = %s, and drainSeconds is %v: make them equal" $drain .Values.drainSeconds) }}{{ end -}}
{{ $config }}
{{ include "tokengrid.toml" (dict "table" $made "path" "") }}
{{- else -}}
{{- range $flow, $services := dig "flows" dict $config -}}
{{- range $service := list "prompt" "agent" -}}
{{- if and (hasKey $services $service) (not (index $.Values $service).enabled) }}{{ fail (printf "config.flows.%s binds %s: set %s.enabled" $flow $service $service) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $made = mustMergeOverwrite (deepCopy $config) $made (dict "gateway" (dict "drain" .Values.drainSeconds)) -}}
{{ include "tokengrid.toml" (dict "table" $made "path" "") }}
{{- end -}}
{{- end }}

{{/* tokengrid.toml of one model's processors: (dict "root" $ "name" NAME "model" MODEL). */}}
{{- define "tokengrid.processor" -}}
{{- $made := dict "bus" (include "tokengrid.bus" .root | fromJson) "gateway" (dict "drain" .root.Values.drainSeconds) -}}
{{- if kindIs "map" .root.Values.config }}{{ with .root.Values.config.traces }}{{ $_ := set $made "traces" . }}{{ end }}{{ end -}}
{{- $made = mustMergeOverwrite $made (include "tokengrid.model" . | fromJson) -}}
{{ include "tokengrid.toml" (dict "table" $made "path" "") }}
{{- end }}

{{/* pick.toml */}}
{{- define "tokengrid.pick" -}}
{{- $made := dict -}}
{{- if .Values.picker.overBus }}{{ $_ := set $made "bus" (include "tokengrid.bus" . | fromJson) }}{{ end -}}
{{- if kindIs "string" .Values.picker.config -}}
{{ .Values.picker.config }}
{{ include "tokengrid.toml" (dict "table" $made "path" "") }}
{{- else -}}
{{ include "tokengrid.toml" (dict "table" (mustMergeOverwrite (deepCopy (.Values.picker.config | default dict)) $made) "path" "") }}
{{- end -}}
{{- end }}
