{{- /* A registry of KAI's holds no image of Muster's: neither it nor the tag beside it is taken. */ -}}
{{- define "muster.kaiRegistry" -}}
{{- if hasSuffix "kai-scheduler" .Values.global.registry -}}true{{- end -}}
{{- end -}}

{{- define "muster.registry" -}}
{{- if include "muster.kaiRegistry" . -}}registry/local/muster{{- else -}}{{ .Values.global.registry | trimSuffix "/" }}{{- end -}}
{{- end -}}

{{- define "muster.tag" -}}
{{- if include "muster.kaiRegistry" . -}}{{ .Chart.AppVersion }}{{- else -}}{{ .Values.global.tag | default .Chart.AppVersion }}{{- end -}}
{{- end -}}

{{- /* The image of the operator and of the hook. */ -}}
{{- define "muster.image" -}}
{{- $own := ternary "" (dig "image" "tag" "" .Values.operator) (eq (include "muster.kaiRegistry" .) "true") -}}
{{- include "muster.registry" . }}/muster:{{ $own | default (include "muster.tag" .) }}
{{- if not (or $own (include "muster.kaiRegistry" .)) -}}{{- with .Values.global.digest }}@{{ . }}{{- end -}}{{- end -}}
{{- end -}}

{{- /* What the chart's own pods have of the values for all pods. */ -}}
{{- define "muster.pod" -}}
{{- $g := .Values.global -}}
{{- $pod := dict -}}
{{- range $name := list "imagePullSecrets" "nodeSelector" "affinity" "tolerations" "priorityClassName" -}}
{{- with get $g $name -}}{{- $_ := set $pod $name . -}}{{- end -}}
{{- end -}}
{{- with $g.podSecurityContext -}}{{- $_ := set $pod "securityContext" . -}}{{- end -}}
{{- if $pod -}}{{- toYaml $pod -}}{{- end -}}
{{- end -}}

{{- /* The security context of their containers; on OpenShift the platform's. */ -}}
{{- define "muster.container" -}}
{{- if not .Values.openshift -}}
securityContext:
  {{- $usual := dict "allowPrivilegeEscalation" false "runAsNonRoot" true "runAsUser" 10000 "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) "seccompProfile" (dict "type" "RuntimeDefault") }}
  {{- toYaml (merge (dict) .Values.global.securityContext $usual) | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* The value of GODEBUG that the value global.fipsMode means; nothing for off. */ -}}
{{- define "muster.fips" -}}
{{- if has .Values.global.fipsMode (list "on" "only") -}}fips140={{ .Values.global.fipsMode }}{{- end -}}
{{- end -}}

{{- /* Environment variables, those of all pods and then own, as JSON: a dict of root and own. */ -}}
{{- define "muster.env" -}}
{{- $vars := list -}}
{{- with include "muster.fips" .root -}}{{- $vars = append $vars (dict "name" "GODEBUG" "value" .) -}}{{- end -}}
{{- $own := concat .root.Values.global.extraEnv (.own | default list) -}}
{{- $out := list -}}
{{- range $i, $var := concat $vars $own -}}
{{- $later := false -}}
{{- range $j, $other := concat $vars $own -}}{{- if and (gt $j $i) (eq $other.name $var.name) -}}{{- $later = true -}}{{- end -}}{{- end -}}
{{- if not $later -}}{{- $out = append $out $var -}}{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{- /* What roles get besides, as JSON for the Config's annotation muster.dev/roles; nothing if there is nothing. */ -}}
{{- define "muster.roles" -}}
{{- $roles := dict -}}
{{- $all := dict -}}
{{- with include "muster.env" (dict "root" .) | fromJsonArray -}}{{- $_ := set $all "env" . -}}{{- end -}}
{{- with .Values.global.podAnnotations -}}{{- $_ := set $all "podAnnotations" . -}}{{- end -}}
{{- with toString .Values.global.logLevel -}}{{- $_ := set $all "logLevel" . -}}{{- end -}}
{{- if $all -}}{{- $_ := set $roles "all" $all -}}{{- end -}}
{{- range $value, $role := dict "podgrouper" "podgrouper" "podgroupcontroller" "podgroup" "queuecontroller" "queue" "binder" "binder" "scheduler" "scheduler" "admission" "admission" "nodescaleadjuster" "nodescale" "numaPlacementExporter" "numa-exporter" -}}
{{- $v := get $.Values $value -}}
{{- $own := dict -}}
{{- $args := $v.extraArgs | default list -}}
{{- if and (eq $role "admission") $.Values.volcano.enabled $.Values.volcano.admission -}}{{- $args = append $args "--volcano-scheduler-name=volcano" -}}
{{- $args = append $args (printf "--volcano-admission-configmap=%s" (include "muster.volcanoGroups" $)) -}}
{{- end -}}
{{- with $args -}}{{- $_ := set $own "args" . -}}{{- end -}}
{{- with $v.extraEnv -}}{{- $_ := set $own "env" . -}}{{- end -}}
{{- with $v.podAnnotations -}}{{- $_ := set $own "podAnnotations" . -}}{{- end -}}
{{- with toString ($v.logLevel | default "") -}}{{- $_ := set $own "logLevel" . -}}{{- end -}}
{{- if $own -}}{{- $_ := set $roles $role $own -}}{{- end -}}
{{- end -}}
{{- if $roles -}}{{- toJson $roles -}}{{- end -}}
{{- end -}}

{{- /* Whether an object about metrics is rendered: as the value says, or, where it says nothing, if the cluster knows Prometheus' operator. */ -}}
{{- define "muster.monitored" -}}
{{- if kindIs "invalid" .enabled -}}
{{- if .root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule" -}}true{{- end -}}
{{- else if .enabled -}}true{{- end -}}
{{- end -}}

{{- /* What this Kubernetes lacks of what Muster can do without: lines of text. Feature gates are taken to be as its version has them by default. */ -}}
{{- define "muster.lacking" -}}
{{- $minor := regexFind "^[0-9]+" .Capabilities.KubeVersion.Minor | int -}}
{{- $claims := .Capabilities.APIVersions.Has "resource.k8s.io/v1" -}}
{{- range $need := (.Files.Get "files/kubernetes.yaml" | fromYaml).needs -}}
{{- $missing := and $claims (lt $minor (int $need.since)) -}}
{{- with $need.api -}}{{- $missing = not ($.Capabilities.APIVersions.Has .) -}}{{- end -}}
{{- if $missing }}
  {{ $need.name }}: {{ $need.lost }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "muster.labels" -}}
app.kubernetes.io/part-of: muster
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Whether an object may be rendered: not if it is there and another release's, or nobody's. A dict: root, api, kind, namespace, name. */ -}}
{{- define "muster.mayOwn" -}}
{{- $old := lookup .api .kind (.namespace | default "") .name -}}
{{- if not $old -}}true
{{- else -}}
{{- $notes := dig "metadata" "annotations" dict $old -}}
{{- if and (eq (get $notes "meta.helm.sh/release-name") .root.Release.Name) (eq (get $notes "meta.helm.sh/release-namespace") .root.Release.Namespace) -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{- define "muster.podSecurity" -}}
pod-security.kubernetes.io/enforce: baseline
pod-security.kubernetes.io/warn: restricted
pod-security.kubernetes.io/audit: restricted
{{- end -}}

{{- /* service of a component: a dict of root and v, its values; enabled, resources, affinity, budget and image. */ -}}
{{- define "muster.service" -}}
{{- $s := dict -}}
{{- if hasKey .v "enabled" -}}{{- if not (kindIs "invalid" .v.enabled) -}}{{- $_ := set $s "enabled" .v.enabled -}}{{- end -}}{{- end -}}
{{- $i := dict -}}
{{- if not (include "muster.kaiRegistry" .root) -}}
{{- $tag := dig "image" "tag" "" .v -}}
{{- with dig "image" "digest" "" .v -}}{{- $tag = printf "%s@%s" ($tag | default (include "muster.tag" $.root)) . -}}{{- end -}}
{{- with $tag -}}{{- $_ := set $i "tag" . -}}{{- end -}}
{{- end -}}
{{- if ne .root.Values.global.imagePullPolicy "IfNotPresent" -}}{{- $_ := set $i "pullPolicy" .root.Values.global.imagePullPolicy -}}{{- end -}}
{{- with dig "image" "pullPolicy" "" .v -}}{{- $_ := set $i "pullPolicy" . -}}{{- end -}}
{{- if $i -}}{{- $_ := set $s "image" $i -}}{{- end -}}
{{- with .v.resources -}}{{- $_ := set $s "resources" . -}}{{- end -}}
{{- with .v.affinity -}}{{- $_ := set $s "affinity" . -}}{{- end -}}
{{- with .v.podDisruptionBudget -}}{{- $_ := set $s "podDisruptionBudget" . -}}{{- end -}}
{{- toYaml $s -}}
{{- end -}}

{{- /* what has no effect: lines of text. */ -}}
{{- define "muster.ignored" -}}
{{- $rows := (.Files.Get "files/values.yaml" | fromYaml).values -}}
{{- $values := .Values.AsMap -}}
{{- range $row := $rows -}}
{{- if $row.ignored -}}
{{- $at := $values -}}
{{- $found := true -}}
{{- range $part := splitList "." $row.path -}}
{{- if and $found (kindIs "map" $at) -}}
{{- if hasKey $at $part -}}{{- $at = get $at $part -}}{{- else -}}{{- $found = false -}}{{- end -}}
{{- else -}}{{- $found = false -}}
{{- end -}}
{{- end -}}
{{- if and $found (ne (toJson $at) (toJson $row.default)) }}
- {{ $row.path }}: {{ $row.ignored }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if include "muster.kaiRegistry" . }}
- global.registry, global.tag: the registry {{ .Values.global.registry }} is KAI's and has no image of Muster's
{{- end -}}
{{- range $key, $value := $values -}}
{{- $known := list -}}
{{- range $row := $rows -}}
{{- $parts := splitList "." $row.path -}}
{{- if eq (first $parts) $key -}}{{- $known = append $known (ternary "" (index $parts (min 1 (sub (len $parts) 1))) (eq (len $parts) 1)) -}}{{- end -}}
{{- end -}}
{{- if not $known }}
- {{ $key }}: the chart knows no such value
{{- else if and (kindIs "map" $value) (not (has "" $known)) -}}
{{- range $inner, $_ := $value -}}
{{- if not (has $inner $known) }}
- {{ $key }}.{{ $inner }}: the chart knows no such value
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Flags of every role that are given: the times of Leases, and after how long work counts as hung. */}}
{{- define "muster.pace" -}}
{{- with .Values.global.lease.duration }}
lease-duration: {{ . | quote }}
{{- end }}
{{- with .Values.global.lease.renewDeadline }}
renew-deadline: {{ . | quote }}
{{- end }}
{{- with .Values.global.lease.retryPeriod }}
retry-period: {{ . | quote }}
{{- end }}
{{- with .Values.global.hungAfter }}
hung-after: {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Where the history of usage comes from, with the claim that keeps it; nothing if there is none. */}}
{{- define "muster.usage" -}}
{{- with .Values.scheduler.usageDBConfig -}}
{{- $usage := deepCopy . -}}
{{- $storage := $.Values.scheduler.usageStorage -}}
{{- if and $storage.size (has (get . "clientType" | default "embedded") (list "embedded" "fake-with-history")) -}}
{{- $extra := dict "persistentVolumeClaimSize" (toString $storage.size) -}}
{{- with $storage.storageClassName -}}{{- $_ := set $extra "persistentVolumeClaimStorageClass" . -}}{{- end -}}
{{- $usage = merge $usage (dict "usageParams" (dict "extraParams" $extra)) -}}
{{- end -}}
{{- toYaml $usage -}}
{{- end -}}
{{- end }}

{{- /* What loses the history of usage, if something does. */}}
{{- define "muster.forgets" -}}
{{- with include "muster.usage" . | fromYaml -}}
{{- $extra := dig "usageParams" "extraParams" dict . -}}
{{- if has (.clientType | default "embedded") (list "embedded" "fake-with-history") -}}
{{- if not (or (get $extra "persistentVolumeClaim") (get $extra "persistentVolumeClaimSize")) -}}
the scheduler's pod, at each rollout and when its node fails. The value scheduler.usageStorage.size has a claim made that keeps it.
{{- end -}}
{{- else if and (eq .clientType "prometheus") (not (or .connectionString .connectionStringEnvVar $.Values.prometheus.externalPrometheusUrl)) $.Values.prometheus.enabled (eq (toString $.Values.prometheus.enablePersistentStorage) "false") -}}
the pod of the Prometheus server. The value prometheus.enablePersistentStorage keeps it.
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Where Volcano's resource groups are, NAMESPACE/NAME:KEY or NAMESPACE/NAME. */ -}}
{{- define "muster.volcanoGroups" -}}
{{- .Values.volcano.admissionConfigMap | default (printf "%s/volcano-admission-configmap:volcano-admission.conf" .Values.volcano.leaseNamespace) -}}
{{- end -}}

{{- /* Where kube-batch's scheduler file is, NAME:KEY; "" for none. */ -}}
{{- define "muster.kubeBatchFile" -}}
{{- if and .Values.kubeBatch.enabled .Values.kubeBatch.schedulerConfigMap -}}
{{- .Values.kubeBatch.schedulerConfigMap -}}
{{- else if and .Values.kubeBatch.enabled .Values.kubeBatch.schedulerConf -}}
muster-kube-batch-{{ .Values.kubeBatch.schedulerConf | sha256sum | trunc 10 }}:kube-batch.conf
{{- end -}}
{{- end -}}

{{- /* Where Volcano's scheduler file is, NAMESPACE/NAME:KEY or NAMESPACE/NAME; "" for none. */ -}}
{{- define "muster.volcanoFile" -}}
{{- if .Values.volcano.schedulerConfigMap -}}
{{- .Values.volcano.schedulerConfigMap -}}
{{- else if .Values.volcano.schedulerConf -}}
{{- .Release.Namespace }}/muster-volcano-scheduler:volcano-scheduler.conf
{{- end -}}
{{- end -}}
