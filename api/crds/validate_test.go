package crds_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	definitionvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
)

// validator checks objects of one kind as the API server does: schema first, then CEL rules.
type validator struct {
	schema     validation.SchemaValidator
	structural *structuralschema.Structural
	rules      *cel.Validator
}

func newValidator(t *testing.T, group, plural string) *validator {
	t.Helper()
	content, err := crds.YAML(group, plural)
	if err != nil {
		t.Fatal(err)
	}
	internal := internalDefinition(t, plural, content)
	properties := internal.Spec.Validation.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(properties)
	if err != nil {
		t.Fatal(err)
	}
	schema, _, err := validation.NewSchemaValidator(properties)
	if err != nil {
		t.Fatal(err)
	}
	return &validator{schema: schema, structural: structural, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

func internalDefinition(t *testing.T, name string, content []byte) *apiextensions.CustomResourceDefinition {
	t.Helper()
	var versioned apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(content, &versioned); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&versioned)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&versioned.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&versioned, internal, nil); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return internal
}

// errors validates a creation (old nil) or an update.
func (v *validator) errors(object, old map[string]any) field.ErrorList {
	var found field.ErrorList
	if old == nil {
		found = validation.ValidateCustomResource(nil, object, v.schema)
	} else {
		found = validation.ValidateCustomResourceUpdate(nil, object, old, v.schema)
	}
	if v.rules != nil {
		var before any
		if old != nil {
			before = old
		}
		broken, _ := v.rules.Validate(context.Background(), nil, v.structural, object, before, celconfig.RuntimeCELCostBudget)
		found = append(found, broken...)
	}
	return found
}

// TestDefinitionsAreValid asks the API server's own validation whether it would take the CRDs; that includes whether
// the CEL rules compile and are cheap enough.
func TestDefinitionsAreValid(t *testing.T) {
	t.Parallel()
	for _, file := range crds.All() {
		internal := internalDefinition(t, file.Name, file.YAML)
		for _, version := range internal.Spec.Versions {
			if version.Storage {
				internal.Status.StoredVersions = append(internal.Status.StoredVersions, version.Name)
			}
		}
		for _, err := range definitionvalidation.ValidateCustomResourceDefinition(context.Background(), internal) {
			t.Errorf("%s: %v", file.Name, err)
		}
	}
}

// object parses a YAML object as the API server holds it.
func object(t *testing.T, text string) map[string]any {
	t.Helper()
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(text), &parsed); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return integral(parsed).(map[string]any)
}

// integral turns whole float64 values into int64, as the API server's decoder does.
func integral(value any) any {
	switch typed := value.(type) {
	case map[string]any:
		for key := range typed {
			typed[key] = integral(typed[key])
		}
	case []any:
		for i := range typed {
			typed[i] = integral(typed[i])
		}
	case float64:
		if typed == math.Trunc(typed) && math.Abs(typed) < 1<<62 {
			return int64(typed)
		}
	}
	return value
}

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

func many(n int) []string {
	var all []string
	for i := range n {
		all = append(all, "example.com/level-"+string(rune('a'+i)))
	}
	return all
}

// TestObjects gives good and bad objects to the schemas and rules. An object without want is taken; otherwise one of
// the errors must contain want.
func TestObjects(t *testing.T) {
	t.Parallel()
	const topology, queue, gang, shard, bind, config = "topologies", "queues", "podgroups", "schedulingshards", "bindrequests", "configs"
	groups := map[string]string{
		topology: "kai.scheduler", shard: "kai.scheduler", config: "kai.scheduler",
		queue: "scheduling.run.ai", gang: "scheduling.run.ai", bind: "scheduling.run.ai",
	}
	cases := []struct {
		name, kind, old, object, want string
	}{
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
		{"huge number of failures", bind, "", "status: {failedAttempts: 9999999999}", "format int32 in status.failedAttempts"},

		{"config", config, "", "spec: {global: {openshift: true}, scheduler: {GOGC: 300}, binder: {plugins: {gpusharing: {enabled: false}}}}", ""},
		{"config with an odd autoscaling mode", config, "", "spec: {global: {vpa: {updatePolicy: {updateMode: Sometimes}}}}", "spec.global.vpa.updatePolicy.updateMode: Unsupported value"},
		{"odd poll interval", config, "", "spec: {numaPlacementExporter: {pollInterval: often}}", "spec.numaPlacementExporter.pollInterval: Invalid value"},
	}

	validators := map[string]*validator{}
	for kind, group := range groups {
		validators[kind] = newValidator(t, group, kind)
	}
	for _, c := range cases {
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			var old map[string]any
			if c.old != "" {
				old = object(t, c.old)
			}
			found := validators[c.kind].errors(object(t, c.object), old)
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("refused: %v", found.ToAggregate())
			case c.want != "" && len(found) == 0:
				t.Errorf("taken, want %q", c.want)
			case c.want != "" && !strings.Contains(found.ToAggregate().Error(), c.want):
				t.Errorf("refused with %q, want %q", found.ToAggregate(), c.want)
			}
		})
	}
}
