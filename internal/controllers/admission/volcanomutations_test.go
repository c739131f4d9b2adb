package admission

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	policypatch "k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/kube/filters/podtemplate"
)

// mutator is one of our policies that change pods, compiled as the API server compiles it.
type mutator struct {
	policy  *admissionregv1.MutatingAdmissionPolicy
	matcher matchconditions.Matcher
	patches []policypatch.Patcher
}

func mutatorOf(t testing.TB, p *admissionregv1.MutatingAdmissionPolicy) *mutator {
	t.Helper()
	c, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		t.Fatal(err)
	}
	options := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil, HasAuthorizer: true}
	for i := range p.Spec.Variables {
		if r := c.CompileAndStoreVariable(&validating.Variable{Name: p.Spec.Variables[i].Name, Expression: p.Spec.Variables[i].Expression}, options, environment.NewExpressions); r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	var conditions []cel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	compiled := c.CompileCondition(conditions, options, environment.NewExpressions)
	for _, err := range compiled.CompilationErrors() {
		t.Fatalf("%s: %v", p.Name, err)
	}
	m := &mutator{policy: p, matcher: matchconditions.NewMatcher(compiled, p.Spec.FailurePolicy, "policy", "mutate", p.Name)}
	options.HasPatchTypes = true
	for _, one := range p.Spec.Mutations {
		var made policypatch.Patcher
		var evaluator cel.MutatingEvaluator
		if one.PatchType == admissionregv1.PatchTypeJSONPatch {
			evaluator = c.CompileMutatingEvaluator(&policypatch.JSONPatchCondition{Expression: one.JSONPatch.Expression}, options, environment.NewExpressions)
			made = policypatch.NewJSONPatcher(evaluator)
		} else {
			evaluator = c.CompileMutatingEvaluator(&policypatch.ApplyConfigurationCondition{Expression: one.ApplyConfiguration.Expression}, options, environment.NewExpressions)
			made = policypatch.NewApplyConfigurationPatcher(evaluator)
		}
		for _, err := range evaluator.CompilationErrors() {
			t.Fatalf("%s: %v", p.Name, err)
		}
		m.patches = append(m.patches, made)
	}
	return m
}

// changes is what the policy makes of a pod that is made, for each parameter; nil is none.
func (m *mutator) changes(t testing.TB, pod *corev1.Pod, params ...*corev1.PodTemplate) *corev1.Pod {
	t.Helper()
	pod = pod.DeepCopy()
	gvk, gvr := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	objects := admission.NewObjectInterfacesFromScheme(scheme.Scheme)
	each := []runtime.Object{nil}
	if m.policy.Spec.ParamKind != nil {
		each = nil
		for _, p := range params {
			each = append(each, p)
		}
	}
	for _, param := range each {
		attributes := &admission.VersionedAttributes{
			Attributes:    admission.NewAttributesRecord(pod, nil, gvk, pod.Namespace, pod.Name, gvr, "", admission.Create, nil, false, nil),
			VersionedKind: gvk, VersionedObject: admission.NewLazyObject(pod),
		}
		matched := m.matcher.Match(context.Background(), attributes, param, nil)
		if matched.Error != nil {
			t.Fatalf("%s: %v", m.policy.Name, matched.Error)
		}
		if !matched.Matches {
			continue
		}
		for _, p := range m.patches {
			got, err := p.Patch(context.Background(), policypatch.Request{
				MatchedResource: gvr, VersionedAttributes: attributes, ObjectInterfaces: objects, OptionalVariables: cel.OptionalVariableBindings{VersionedParams: param},
				TypeConverter: managedfields.NewDeducedTypeConverter(),
			}, celconfig.RuntimeCELCostBudget)
			if err != nil {
				t.Fatalf("%s: %v", m.policy.Name, err)
			}
			body, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			pod = &corev1.Pod{}
			if err := json.Unmarshal(body, pod); err != nil {
				t.Fatal(err)
			}
			attributes.UpdateObject(pod)
		}
	}
	return pod
}

// groupPod is a pod of a namespace, with annotations.
func groupPod(namespace string, notes map[string]string) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", Annotations: notes},
		Spec: corev1.PodSpec{SchedulerName: "somebody", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

// mutations are the policies by name.
func mutations(t testing.TB) map[string]*mutator {
	t.Helper()
	o := bothFaces()
	o.VolcanoGates, o.VolcanoGroupsIn = true, "volcano-system"
	all, out := o.VolcanoMutations(), map[string]*mutator{}
	for i := 0; i < len(all); i += 2 {
		p, isPolicy := all[i].(*admissionregv1.MutatingAdmissionPolicy)
		b, isBinding := all[i+1].(*admissionregv1.MutatingAdmissionPolicyBinding)
		if !isPolicy || !isBinding || b.Spec.PolicyName != p.Name {
			t.Fatalf("%T, %T: not a policy and its binding", all[i], all[i+1])
		}
		out[p.Name] = mutatorOf(t, p)
	}
	return out
}

// TestResourceGroupPolicy: what a pod gets of which group. The second group's file is written to break out of anything that would make an expression of it.
func TestResourceGroupPolicy(t *testing.T) {
	t.Parallel()
	const file = `resourceGroups:
- resourceGroup: management
  object: {key: namespace, value: [mng, mng-2]}
  schedulerName: default-scheduler
  tolerations: [{key: taint, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}, {key: other, operator: Equal, value: "a-b"}]
  labels: {volcano.sh/nodetype: management, zone: a}
- resourceGroup: "'] || true || ['"
- resourceGroup: cpu
  object: {key: annotation, value: ["volcano.sh/resource-group: cpu", "example.com/kind: ''"]}
  schedulerName: volcano
  labels: {volcano.sh/nodetype: cpu}
- resourceGroup: gpu
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 7, preference: {matchExpressions: [{key: gpu, operator: Exists}]}}]}}
`
	groups, _, err := volcano.ParseGroups([]byte(file), "volcano-system", podtemplate.Validate)
	if err != nil {
		t.Fatal(err)
	}
	m := mutations(t)[PolicyVolcanoResourceGroups]
	of := func(v string) map[string]string { return map[string]string{"volcano.sh/resource-group": v} }
	managed := func(p *corev1.Pod) {
		p.Spec.SchedulerName, p.Spec.NodeSelector = "default-scheduler", map[string]string{"volcano.sh/nodetype": "management", "zone": "a"}
		seconds := int64(3600)
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "taint", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds}, corev1.Toleration{Key: "other", Operator: "Equal", Value: "a-b"})
	}
	cpu := func(p *corev1.Pod) {
		p.Spec.SchedulerName, p.Spec.NodeSelector = "volcano", map[string]string{"volcano.sh/nodetype": "cpu"}
	}
	wish := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: 7, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: "Exists"}}}},
	}}}
	for name, c := range map[string]struct {
		namespace string
		notes     map[string]string
		before    func(*corev1.Pod)
		after     func(*corev1.Pod)
	}{
		"nobody's":                    {"team", nil, nil, nil},
		"another value":               {"team", of("tpu"), nil, nil},
		"another key":                 {"team", map[string]string{"resource-group": "cpu"}, nil, nil},
		"by namespace":                {"mng-2", nil, nil, managed},
		"by annotation":               {"team", of("cpu"), nil, cpu},
		"by an empty value":           {"team", map[string]string{"example.com/kind": ""}, nil, cpu},
		"by its name":                 {"team", of("gpu"), nil, func(p *corev1.Pod) { p.Spec.Affinity = wish }},
		"the first of two":            {"mng", of("cpu"), nil, managed},
		"of the first and the fourth": {"mng", of("gpu"), nil, managed},
		"a text that would break out": {"team", of("'] || true || ['"), nil, nil},
		"labels and tolerations of its own": {"mng", nil, func(p *corev1.Pod) {
			p.Spec.NodeSelector, p.Spec.Tolerations = map[string]string{"mine": "1", "zone": "b"}, []corev1.Toleration{{Key: "own", Operator: "Exists"}}
		}, func(p *corev1.Pod) { managed(p); p.Spec.NodeSelector["mine"] = "1" }},
		"an affinity of its own": {"team", of("gpu"), func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}} }, nil},
		"on its node already":    {"mng", nil, func(p *corev1.Pod) { p.Spec.NodeName = "n" }, nil},
	} { // order: each on its own
		pod := groupPod(c.namespace, c.notes)
		if c.before != nil {
			c.before(pod)
		}
		want := pod.DeepCopy()
		if c.after != nil {
			c.after(want)
		}
		if d := cmp.Diff(want, m.changes(t, pod, groups...)); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// TestQueueGatePolicy: who asks for the gate has it, of Volcano's pods alone.
func TestQueueGatePolicy(t *testing.T) {
	t.Parallel()
	m := mutations(t)[PolicyVolcanoGate]
	const gate = "scheduling.volcano.sh/queue-allocation-gate"
	for name, c := range map[string]struct {
		scheduler, says, node string
		want                  bool
	}{
		"asks": {"volcano", "true", "", true}, "of the other name": {"mine", "true", "", true}, "does not": {"volcano", "false", "", false}, "is silent": {"volcano", "", "", false},
		"is another's": {"kai-scheduler", "true", "", false}, "has its node": {"volcano", "true", "n", false},
	} { // order: each on its own
		pod := groupPod("team", map[string]string{gate: c.says})
		pod.Spec.SchedulerName, pod.Spec.NodeName = c.scheduler, c.node
		want := pod.DeepCopy()
		if c.want {
			want.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
		}
		if d := cmp.Diff(want, m.changes(t, pod)); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// TestVolcanoMutationsAreAsked: the policies are there as far as they are asked for, and let a pod pass where they cannot be evaluated.
func TestVolcanoMutationsAreAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		o    Options
		want []string
	}{
		"off":    {Options{VolcanoGroupsIn: "x", VolcanoGates: true}, nil},
		"groups": {Options{Rules: Rules{Volcano: []string{"volcano"}}, VolcanoGroupsIn: "x"}, []string{PolicyVolcanoResourceGroups}},
		"gates":  {Options{Rules: Rules{Volcano: []string{"volcano"}}, VolcanoGates: true}, []string{PolicyVolcanoGate}},
	} { // order: each on its own
		var got []string
		for i, object := range c.o.VolcanoMutations() {
			if i%2 == 0 {
				got = append(got, object.GetName())
				if p := object.(*admissionregv1.MutatingAdmissionPolicy); *p.Spec.FailurePolicy != admissionregv1.Ignore {
					t.Errorf("%s: pods wait for %s", name, p.Name)
				}
			}
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}
