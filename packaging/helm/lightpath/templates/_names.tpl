{{- define "lightpath.name" -}}
{{- if contains "lightpath" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-lightpath{{ end -}}
{{- end }}

{{/* lightpath.labels: of an object, with what it is part of. Argument: (list . "controller"). */}}
{{- define "lightpath.labels" -}}
{{- $root := index . 0 -}}
{{ include "lightpath.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}

{{/* lightpath.selector: the labels that choose the pods of a part. */}}
{{- define "lightpath.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: lightpath
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* lightpath.match: the same as JSON. */}}
{{- define "lightpath.match" -}}
{{ include "lightpath.selector" . | fromYaml | toJson }}
{{- end }}

{{- define "lightpath.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* lightpath.pods: the addresses of the n pods of a stateful set, each in a format, as a JSON list. Argument:
(list . "-etcd" 3 "https://%s:2379"). */}}
{{- define "lightpath.pods" -}}
{{- $root := index . 0 -}}
{{- $set := printf "%s%s" (include "lightpath.name" $root) (index . 1) -}}
{{- $format := index . 3 -}}
{{- $all := list -}}
{{- range $i := until (int (index . 2)) -}}
{{- $all = append $all (printf $format (printf "%s-%d.%s.%s.svc" $set $i $set $root.Release.Namespace)) -}}
{{- end -}}
{{- toJson $all -}}
{{- end }}

{{/* lightpath.keyFiles: the files of a certificate, relative to the fabric file, as JSON. */}}
{{- define "lightpath.keyFiles" -}}
{"ca": "keys/ca.crt", "cert": "keys/tls.crt", "key": "keys/tls.key"}
{{- end }}

{{/* lightpath.pod: what all pods have. */}}
{{- define "lightpath.pod" -}}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* lightpath.apart: the affinity of pods that should be on different nodes. Argument: (list . "etcd"). */}}
{{- define "lightpath.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {matchLabels: {{ include "lightpath.match" . }}}
{{- end }}

{{/* lightpath.restricted: the security context of a container that needs no rights. */}}
{{- define "lightpath.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* lightpath.unprivileged: the security context of a pod that needs no rights. Files of secrets get the group. */}}
{{- define "lightpath.unprivileged" -}}
runAsNonRoot: true
runAsUser: 990
runAsGroup: 990
fsGroup: 990
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* lightpath.keys: the volume of a certificate. Argument: (list . "rank"). */}}
{{- define "lightpath.keys" -}}
name: keys
secret:
  secretName: {{ include "lightpath.name" (index . 0) }}-{{ index . 1 }}
  defaultMode: 0440
{{- end }}
