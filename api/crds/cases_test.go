package crds_test

import "strings"

// objectCase is an object that the API server takes, if want is empty, or refuses with an error that contains want.
// With old it is an update of that.
type objectCase struct {
	name, kind, old, object, want string
}

// groupOf says to which API group each kind of the cases belongs.
func groupOf(kind string) string {
	switch kind {
	case "topologies", "schedulingshards", "configs":
		return "kai.scheduler"
	}
	return "scheduling.run.ai"
}

// objectCases covers every constraint of the schemas, and values at the edge of what Go's types hold.
func objectCases() []objectCase {
	const topology, queue, gang, shard, bind, config = "topologies", "queues", "podgroups", "schedulingshards", "bindrequests", "configs"
	return []objectCase{
		{"three levels", topology, "", levels("example.com/zone", "example.com/rack", "kubernetes.io/hostname"), ""},
		{"aliases", topology, "", levels("example.com/zone=zone", "example.com/rack=rack"), ""},
		{"sixteen levels", topology, "", levels(many(16)...), ""},
		{"seventeen levels", topology, "", levels(many(17)...), "spec.levels: Too many: 17: must have at most 16 items"},
		{"no level", topology, "", "spec: {levels: []}", "spec.levels: Invalid value"},
		{"no levels", topology, "", "spec: {}", "spec.levels: Required value"},
		{"no spec", topology, "", "{}", "spec: Required value"},
		{"level without label", topology, "", "spec: {levels: [{alias: a}]}", "spec.levels[0].nodeLabel: Required value"},
		{"empty label", topology, "", levels(""), "spec.levels[0].nodeLabel: Invalid value"},
		{"label with a space", topology, "", levels("a b"), "spec.levels[0].nodeLabel: Invalid value"},
		{"label that is too long", topology, "", levels(strings.Repeat("a", 317)), "spec.levels[0].nodeLabel: Too long"},
		{"alias with a slash at its end", topology, "", levels("zone=a/"), "spec.levels[0].alias: Invalid value"},
		{"empty alias", topology, "", levels("zone="), "spec.levels[0].alias: Invalid value"},
		{"label twice", topology, "", levels("zone", "rack", "zone"), "each node label may appear in one level only"},
		{"alias twice", topology, "", levels("zone=a", "rack=b", "host=a"), "each alias may be given to one level only"},
		{"alias that is a label", topology, "", levels("zone=rack", "rack"), "an alias must differ from every node label of the Topology"},
		{"alias that is its own label", topology, "", levels("zone=zone"), "an alias must differ from every node label of the Topology"},
		{"alias changed to a label", topology, levels("zone=a", "rack"), levels("zone=rack", "rack"), "an alias must differ from every node label of the Topology"},
		{"host in the middle", topology, "", levels("zone", "kubernetes.io/hostname", "rack"), "kubernetes.io/hostname may only be the last"},
		{"host alone", topology, "", levels("kubernetes.io/hostname"), ""},
		{"alias changed", topology, levels("zone=a", "rack"), levels("zone=b", "rack=c"), ""},
		{"label changed", topology, levels("zone", "rack"), levels("zone", "block"), "the sequence of node labels cannot be changed"},
		{"levels swapped", topology, levels("zone", "rack"), levels("rack", "zone"), "the sequence of node labels cannot be changed"},
		{"level added", topology, levels("zone"), levels("zone", "rack"), "the sequence of node labels cannot be changed"},
		{"level removed", topology, levels("zone", "rack"), levels("zone"), "the sequence of node labels cannot be changed"},

		{"gang", gang, "", "spec: {minMember: 4, queue: team, preemptibility: non-preemptible, stalenessGracePeriod: -1s}", ""},
		{"gang of none", gang, "", "spec: {minMember: 0}", ""},
		{"gang without spec", gang, "", "{}", ""},
		{"negative minimum", gang, "", "spec: {minMember: -1}", "spec.minMember: Invalid value"},
		{"negative minimum of subgroups", gang, "", "spec: {minSubGroup: -1}", "spec.minSubGroup: Invalid value"},
		{"minimum of a fraction", gang, "", "spec: {minMember: 1.5}", "spec.minMember: Invalid value"},
		{"minimum as text", gang, "", "spec: {minMember: four}", "spec.minMember: Invalid value"},
		{"unknown preemptibility", gang, "", "spec: {preemptibility: maybe}", "spec.preemptibility: Unsupported value"},
		{"subgroups", gang, "", "spec: {subGroups: [{name: a, minSubGroup: 1}, {name: b, parent: a, minMember: 2}]}", ""},
		{"subgroup without name", gang, "", "spec: {subGroups: [{minMember: 1}]}", "spec.subGroups[0].name: Required value"},
		{"subgroup with an empty name", gang, "", `spec: {subGroups: [{name: ""}]}`, "spec.subGroups[0].name: Invalid value"},
		{"subgroup in capitals", gang, "", "spec: {subGroups: [{name: Leader}]}", "spec.subGroups[0].name: Invalid value"},
		{"subgroup of capitals", gang, "", "spec: {subGroups: [{name: a, parent: Leader}]}", "spec.subGroups[0].parent: Invalid value"},
		{"negative minimum of a subgroup", gang, "", "spec: {subGroups: [{name: a, minMember: -2}]}", "spec.subGroups[0].minMember: Invalid value"},
		{"largest minimum", gang, "", "spec: {minMember: 2147483647}", ""},
		{"huge minimum", gang, "", "spec: {minMember: 2147483648}", "format int32 in spec.minMember"},
		{"huge backoff", gang, "", "spec: {schedulingBackoff: 9999999999}", "format int32 in spec.schedulingBackoff"},
		{"huge delay", gang, "", "spec: {preemptionDelay: 9999999h}", "spec.preemptionDelay: Invalid value"},
		{"delay in words", gang, "", "spec: {preemptionDelay: soon}", "spec.preemptionDelay: Invalid value"},
		{"delay without unit", gang, "", `spec: {preemptionDelay: "10"}`, "spec.preemptionDelay: Invalid value"},
		{"empty delay", gang, "", `spec: {preemptionDelay: ""}`, "spec.preemptionDelay: Invalid value"},
		{"delay of zero", gang, "", `spec: {preemptionDelay: "0"}`, ""},

		{"queue", queue, "", "spec: {parentQueue: a, priority: 200, resources: {gpu: {quota: 0.5, limit: -1, overQuotaWeight: 2}}}", ""},
		{"queue without resources", queue, "", "spec: {}", ""},
		{"queue with further resources", queue, "", "spec: {resources: {extended: {rdma/hca: {quota: 4, limit: 8, overQuotaWeight: 1}}}}", ""},
		{"further resource as a number", queue, "", "spec: {resources: {extended: {rdma/hca: 4}}}", "spec.resources.extended.rdma/hca: Invalid value"},
		{"quota as text", queue, "", "spec: {resources: {gpu: {quota: many}}}", "spec.resources.gpu.quota: Invalid value"},
		{"huge quota", queue, "", "spec: {resources: {gpu: {quota: 1e300}}}", ""},
		{"priority of a fraction", queue, "", "spec: {priority: 1.5}", "spec.priority: Invalid value"},
		{"runtime in words", queue, "", "spec: {reclaimMinRuntime: soon}", "spec.reclaimMinRuntime: Invalid value"},
		{"amount in a status", queue, "", "status: {allocated: {cpu: 1500m, memory: 4Gi, nvidia.com/gpu: 3}}", ""},

		{"shard", shard, "", "spec: {goMemLimitRatio: 1, goMemLimit: 2Gi, usageDBConfig: {clientType: prometheus, usageParams: {windowSize: 1w2d}}}", ""},
		{"memory ratio of zero", shard, "", "spec: {goMemLimitRatio: 0}", "spec.goMemLimitRatio: Invalid value"},
		{"memory ratio above one", shard, "", "spec: {goMemLimitRatio: 1.01}", "spec.goMemLimitRatio: Invalid value"},
		{"usage without client", shard, "", "spec: {usageDBConfig: {}}", "spec.usageDBConfig.clientType: Required value"},
		{"window in the wrong order", shard, "", "spec: {usageDBConfig: {clientType: prometheus, usageParams: {windowSize: 1d1w}}}", "usageParams.windowSize: Invalid value"},
		{"odd memory limit", shard, "", "spec: {goMemLimit: 1e1.5}", "spec.goMemLimit: Invalid value"},
		{"odd budget", shard, "", "spec: {scenarioSearchBudgets: {maxActionSearchDuration: {reclaim: long}}}", "maxActionSearchDuration: Invalid value"},

		{"request", bind, "", `spec: {podName: p, selectedNode: n1, receivedResourceType: Fraction, receivedGPU: {count: 1, portion: "0.50"}, backoffLimit: 3}`, ""},
		{"request with an odd type", bind, "", "spec: {receivedResourceType: Whole}", ""},
		{"zone without name", bind, "", "spec: {predictedNUMAZones: [{amount: {cpu: 1}}]}", "spec.predictedNUMAZones[0].zone: Required value"},
		{"huge number of failures", bind, "", "status: {failedAttempts: 9999999999}", "must be of type integer with format int32 in"},

		{"config", config, "", "spec: {global: {openshift: true}, scheduler: {GOGC: 300}, binder: {plugins: {gpusharing: {enabled: false}}}}", ""},
		{"config with an odd autoscaling mode", config, "", "spec: {global: {vpa: {updatePolicy: {updateMode: Sometimes}}}}", "spec.global.vpa.updatePolicy.updateMode: Unsupported value"},
		{"odd poll interval", config, "", "spec: {numaPlacementExporter: {pollInterval: often}}", "spec.numaPlacementExporter.pollInterval: Invalid value"},
	}
}

// levels writes a Topology with the given node labels, each as LABEL or LABEL=ALIAS.
func levels(lines ...string) string {
	text := "spec:\n  levels:\n"
	for _, line := range lines {
		label, alias, has := strings.Cut(line, "=")
		text += "  - nodeLabel: \"" + label + "\"\n"
		if has {
			text += "    alias: \"" + alias + "\"\n"
		}
	}
	return text
}

// many returns n node labels.
func many(n int) []string {
	var all []string
	for i := range n {
		all = append(all, "example.com/level-"+string(rune('a'+i)))
	}
	return all
}
