{{- define "headstart.labels" -}}
app.kubernetes.io/part-of: headstart
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* headstart.image (list $ "node") is an image's reference. */}}
{{- define "headstart.image" -}}
{{- $root := index . 0 }}
{{- $image := index $root.Values.image (index . 1) }}
{{- if and (not $image.digest) (not $root.Values.image.tag) (eq $root.Chart.AppVersion "dev") }}
{{- fail "this chart is of no release, so there are no images of its version: use the chart of a release; or `make images`, and add -f out/images/values.yaml" }}
{{- end }}
{{- $name := $image.repository }}
{{- with $root.Values.image.registry }}{{ $name = printf "%s/%s" (trimSuffix "/" .) $name }}{{ end }}
{{- if $image.digest }}{{ $name }}@{{ $image.digest }}
{{- else }}{{ $name }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "headstart.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* headstart.store is what a store's kind says, as JSON: the schemes of its references, the buckets, the secret. */}}
{{- define "headstart.store" -}}
{{- $kind := .s3 | default .redis | default .http }}
{{- $schemes := list "s3" }}
{{- $buckets := $kind.buckets }}
{{- if .redis }}{{ $schemes = list "redis" }}{{ $buckets = .redis.keyspaces }}
{{- else if .http }}{{ $schemes = ternary (list "https") (list "https" "http") (not (empty .http.credentialsSecret)) }}{{ $buckets = .http.hosts }}
{{- end }}
{{- dict "schemes" $schemes "buckets" $buckets "secret" ($kind.credentialsSecret | default "") | toJson }}
{{- end }}

{{- /* headstart.stores is the list of stores as CEL, which has JSON's syntax. */}}
{{- define "headstart.stores" -}}
{{- $list := list }}
{{- range .Values.stores }}
{{- $store := include "headstart.store" . | fromJson }}
{{- $list = append $list (dict "name" (list .name) "schemes" $store.schemes "buckets" $store.buckets "namespaces" (.namespaces | default list)) }}
{{- end }}
{{- $list | toJson }}
{{- end }}

{{- /* headstart.destinations is the list of destinations in the same way. */}}
{{- define "headstart.destinations" -}}
{{- $list := list }}
{{- range .Values.destinations }}
{{- $list = append $list (dict "name" (list .name) "namespaces" (.namespaces | default list)) }}
{{- end }}
{{- $list | toJson }}
{{- end }}

{{- /* headstart.off are the parts that are switched off, as the values call them. */}}
{{- define "headstart.off" -}}
{{- $off := list }}
{{- range $part := list "admission" "installer" "istio" "runtimeClass" }}
{{- if not (index $.Values $part).enabled }}{{ $off = append $off $part }}{{ end }}
{{- end }}
{{- join "," $off }}
{{- end }}

{{- /* What the API server's credentials are mounted from, where a container needs them. */}}
{{- define "headstart.apiAccess" -}}
- name: api-access
  projected:
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3607}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- /* headstart.istio (list $ "gateways.yaml") is a file of manifests/istio for this mesh. */}}
{{- define "headstart.istio" -}}
{{- $root := index . 0 }}
{{- $istio := $root.Values.istio }}
{{- $text := $root.Files.Get (printf "files/istio/%s" (index . 1)) }}
{{- $text = regexReplaceAll "(?m)^  namespace: istio-system.*$" $text (printf "  namespace: %s" (index . 2)) }}
{{- with $istio.revision }}{{ $text = replace "  labels:\n" (printf "  labels:\n    istio.io/rev: %s\n" .) $text }}{{ end }}
{{- $url := $istio.extensionURL }}
{{- if not $url }}{{ $url = printf "oci://%s" (include "headstart.image" (list $root "prefetch")) }}{{ end }}
{{- $text = regexReplaceAll "(?m)^( *)url: .*$" $text (printf "${1}url: %s%s" $url (ternary (printf "\n${1}imagePullSecret: %s" $istio.extensionPullSecret) "" (ne $istio.extensionPullSecret ""))) }}
{{- $text }}
{{- end }}
