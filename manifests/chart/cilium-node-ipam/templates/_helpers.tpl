{{- /*
Gives values that a user has unset with `null` their defaults, before a template reads them. Fields of Kubernetes stay unset
instead, so that Kubernetes decides. Every template starts with it: Helm renders them in any order, with the same values.
*/}}
{{- define "cilium-node-ipam.defaults" -}}
{{- $of_kubernetes := list "resources" "nodeSelector" "tolerations" "priorityClassName" "podSecurityContext" "securityContext" "readinessProbe" "livenessProbe" }}
{{- $defaults := .Files.Get "files/values.yaml" | fromYaml }}
{{- range $of_kubernetes }}{{ $_ := unset $defaults . }}{{ end }}
{{- include "cilium-node-ipam.fill" (list .Values $defaults) }}
{{- end }}

{{- define "cilium-node-ipam.fill" -}}
{{- $values := index . 0 }}
{{- $defaults := index . 1 }}
{{- range $key, $value := $values }}
{{- if kindIs "invalid" $value }}
{{- $_ := unset $values $key }}
{{- else if and (kindIs "map" $value) (ne $key "global") }}
{{- $default := get $defaults $key }}
{{- /* A user can remove a label, or leave all to the chart. */}}
{{- $is_filled := and (kindIs "map" $default) (ne $key "labels") }}
{{- include "cilium-node-ipam.fill" (list $value (ternary $default dict $is_filled)) }}
{{- end }}
{{- end }}
{{- range $key, $default := $defaults }}
{{- if not (hasKey $values $key) }}
{{- $_ := set $values $key $default }}
{{- end }}
{{- end }}
{{- end }}

{{- define "cilium-node-ipam.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "cilium-node-ipam.fullname" -}}
{{- $name := include "cilium-node-ipam.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "cilium-node-ipam.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "cilium-node-ipam.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* A Deployment's selector is immutable. It does not contain the name of the release, so another release can take it over. */}}
{{- define "cilium-node-ipam.selectorLabels" -}}
app.kubernetes.io/name: {{ include "cilium-node-ipam.name" . }}
{{- end }}

{{- define "cilium-node-ipam.labels" -}}
{{ include "cilium-node-ipam.selectorLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cilium-node-ipam.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- with .Values.image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /*
The number that `kubectl scale` has set stays: to render another one would undo it, and Helm 4, which applies on the
server, would refuse that as a conflict.
*/}}
{{- define "cilium-node-ipam.replicas" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "cilium-node-ipam.fullname" .) }}
{{- $replicas := .Values.replicaCount }}
{{- range dig "metadata" "managedFields" list $live }}
{{- if eq (default "" .subresource) "scale" }}
{{- $replicas = $live.spec.replicas }}
{{- end }}
{{- end }}
{{- int $replicas }}
{{- end }}

{{- define "cilium-node-ipam.affinity" -}}
{{- $apart := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "cilium-node-ipam.selectorLabels" . | fromYaml)) }}
{{- $default := dict "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $apart)) }}
{{- toYaml (merge (dict) .Values.affinity (ternary (dict) $default (hasKey .Values.affinity "podAntiAffinity"))) }}
{{- end }}

{{- /* The flags of `cilium-node-ipam run`: one for each value that is not the program's own default. */}}
{{- define "cilium-node-ipam.args" -}}
- run
# The loopback address of the node: nothing else protects a port of the host network, and kubelet is on the same host.
- --listen=127.0.0.1:{{ .Values.port }}
- --log-format={{ .Values.logFormat }}
{{- if ne (join "," .Values.modes) "crd" }}
- --modes={{ join "," .Values.modes }}
{{- end }}
{{- if ne .Values.nodeField "spec" }}
- --node-field={{ .Values.nodeField }}
{{- end }}
{{- if .Values.createCiliumNodes }}
- --create-ciliumnodes
{{- end }}
{{- if .Values.createPodIPPools }}
- --create-podippools
{{- end }}
{{- if .Values.nodeCondition }}
- --node-condition
{{- end }}
{{- with .Values.routes.exporter }}
- --routes={{ . }}
{{- with $.Values.routes.template }}
- --routes-template={{ . }}
{{- end }}
{{- with $.Values.routes.gobgp }}
{{- if .address }}
- --gobgp-address={{ .address }}
- --gobgp-max-prefixes={{ int64 .maxPrefixes }}
- --gobgp-path-id={{ int64 .pathId }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.reclaimUnknownAgents }}
- --reclaim-unknown-agents
{{- end }}
{{- if ne (int64 .Values.watchEventBudget) 30000 }}
- --watch-event-budget={{ int64 .Values.watchEventBudget }}
{{- end }}
{{- range .Values.startupTaints }}
- --startup-taint={{ . }}
{{- end }}
{{- if ne .Values.ciliumNamespace "kube-system" }}
- --cilium-namespace={{ .Values.ciliumNamespace }}
{{- end }}
{{- with .Values.leaderElection }}
{{- if not .enabled }}
- --leader-elect=false
{{- end }}
{{- with .leaseDuration }}
- --lease-duration={{ . }}
{{- end }}
{{- with .renewDeadline }}
- --renew-deadline={{ . }}
{{- end }}
{{- with .retryPeriod }}
- --retry-period={{ . }}
{{- end }}
{{- end }}
{{- with .Values.metricsPort }}
{{- if .enabled }}
- --metrics-listen=:{{ .port }}
{{- if .certificateSecret }}
- --metrics-certificate={{ include "cilium-node-ipam.certificateFolder" . }}/tls.crt
- --metrics-key={{ include "cilium-node-ipam.certificateFolder" . }}/tls.key
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /*
The address of the API server, as variables of a container. `auto` is resolved as by Cilium's chart: from the kubeconfig for
users without rights, which kubeadm publishes.
*/}}
{{- define "cilium-node-ipam.apiServer" -}}
{{- $host := .Values.k8sServiceHost }}
{{- $port := .Values.k8sServicePort | toString }}
{{- if eq $host "auto" }}
{{- $map := lookup "v1" "ConfigMap" "kube-public" "cluster-info" }}
{{- $clusters := dig "data" "kubeconfig" "" $map | fromYaml | dig "clusters" list }}
{{- $server := urlParse (default dict (first $clusters) | dig "cluster" "server" "") }}
{{- $host = $server.hostname }}
{{- $port = regexFind ":[0-9]+$" $server.host | trimPrefix ":" | default "443" }}
{{- if not $host }}
{{- fail "k8sServiceHost=auto reads the address of the API server from the ConfigMap kube-public/cluster-info of the cluster, and found none: set k8sServiceHost and k8sServicePort" }}
{{- end }}
{{- end }}
{{- with $host }}
# Where Cilium replaces kube-proxy, the Service `kubernetes` does not work on a node before its agent runs,
# and agents wait for this controller.
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
{{- with $port }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The fields of every pod of this chart: it must run where no other pod can. */}}
{{- define "cilium-node-ipam.pod" -}}
serviceAccountName: {{ include "cilium-node-ipam.serviceAccountName" . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
hostNetwork: true
# The node's resolver: cluster DNS itself waits for pod addresses.
dnsPolicy: Default
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The flags by which a command finds this installation. */}}
{{- define "cilium-node-ipam.namespaces" -}}
{{- if ne .Values.ciliumNamespace "kube-system" }} --cilium-namespace={{ .Values.ciliumNamespace }}{{ end }}
{{- if ne .Release.Namespace "kube-system" }} --namespace={{ .Release.Namespace }}{{ end }}
{{- end }}

{{- define "cilium-node-ipam.certificateFolder" -}}
/etc/cilium-node-ipam/metrics-port
{{- end }}

{{- /* Values that contradict each other. The schema can refuse them too, but its messages do not help. */}}
{{- define "cilium-node-ipam.validate" -}}
{{- if and .Values.metricsPort.enabled (eq (int .Values.port) (int .Values.metricsPort.port)) }}
{{- fail "port and metricsPort.port are ports of the same node: set different ones" }}
{{- end }}
{{- if and .Values.createPodIPPools (not (has "multi-pool" .Values.modes)) }}
{{- fail "createPodIPPools has an effect in the mode multi-pool only: add multi-pool to modes, or set createPodIPPools=false" }}
{{- end }}
{{- if and (ne .Values.nodeField "spec") (not (has "kubernetes" .Values.modes)) }}
{{- fail "nodeField has an effect in the mode kubernetes only: add kubernetes to modes, or set nodeField=spec" }}
{{- end }}
{{- with .Values.routes }}
{{- if and .template .gobgp.address }}
{{- fail "routes are announced in one way only: set either routes.template or routes.gobgp.address" }}
{{- end }}
{{- if and (eq .exporter "frr-k8s") (not .template) }}
{{- fail "routes.exporter=frr-k8s needs a template: set routes.template to NAMESPACE/NAME of an FRRConfiguration" }}
{{- end }}
{{- if and (eq .exporter "gobgp") (not .gobgp.address) }}
{{- fail "routes.exporter=gobgp needs a daemon: set routes.gobgp.address to HOST:PORT of its gRPC API" }}
{{- end }}
{{- if and (eq .exporter "remove") (not .template) (not .gobgp.address) }}
{{- fail "routes.exporter=remove needs the place of the routes: set routes.template or routes.gobgp.address" }}
{{- end }}
{{- end }}
{{- if and (eq .Values.routes.exporter "gobgp") (not .Values.leaderElection.enabled) }}
{{- fail "routes.exporter=gobgp needs the election: set leaderElection.enabled=true" }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.metricsPort.enabled) }}
{{- fail "serviceMonitor needs the metrics port: set metricsPort.enabled=true" }}
{{- end }}
{{- $host := .Values.k8sServiceHost }}
{{- if and .Values.k8sServicePort (not $host) }}
{{- fail "k8sServicePort has an effect with k8sServiceHost only: set both" }}
{{- end }}
{{- if or (contains "/" $host) (hasPrefix "[" $host) (regexMatch "^[^:]+:[0-9]*$" $host) }}
{{- $parts := urlParse (ternary $host (print "//" $host) (contains "//" $host)) }}
{{- fail (printf "k8sServiceHost is a name or an address, without scheme, port and path: set k8sServiceHost=%s, and k8sServicePort to its port" $parts.hostname) }}
{{- end }}
{{- end }}
