package admission

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// door is what keeps the API server from asking about an object.
type door struct{ m matchconditions.Matcher }

func doorOf(t testing.TB, conditions []admissionregv1.MatchCondition) door {
	t.Helper()
	var all []cel.ExpressionAccessor
	for i := range conditions {
		all = append(all, (*matchconditions.MatchCondition)(&conditions[i]))
	}
	c := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())).CompileCondition(all, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	for _, err := range c.CompilationErrors() {
		t.Fatal(err)
	}
	return door{matchconditions.NewMatcher(c, ptr.To(admissionregv1.Fail), "webhook", "validate", "it")}
}

// asks says whether the API server asks about an object that replaces another, nil for none.
func (d door) asks(t testing.TB, resource, kind string, now, old runtime.Object) bool {
	t.Helper()
	op := admission.Create
	if old != nil {
		op = admission.Update
	}
	gvk, gvr := schema.GroupVersionKind{Version: "v1", Kind: kind}, schema.GroupVersionResource{Version: "v1", Resource: resource}
	a := admission.NewAttributesRecord(now, old, gvk, "team", "x", gvr, "", op, nil, false, &user.DefaultInfo{Name: "eve"})
	got := d.m.Match(t.Context(), &admission.VersionedAttributes{Attributes: a, VersionedObject: admission.NewLazyObject(now), VersionedOldObject: admission.NewLazyObject(old), VersionedKind: gvk}, nil, nil)
	if got.Error != nil {
		t.Fatal(got.Error)
	}
	return got.Matches
}

// says is all that a review comes to; "" for nothing.
func says(t testing.TB, judge review, now, old any) string {
	t.Helper()
	raw := func(o any) (out runtime.RawExtension) {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.Raw = text
		return out
	}
	req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create, Namespace: "team", Object: raw(now)}
	if old != nil {
		req.Operation, req.OldObject = admissionv1.Update, raw(old)
	}
	a, err := judge(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if a.deny == nil && len(a.patch) == 0 && len(a.warnings) == 0 {
		return ""
	}
	return fmt.Sprintf("denies %v, patches %v, warns %q", a.deny, a.patch, a.warnings)
}

// TestAskedWhereThereIsSomethingToSay: wherever the role would change, refuse or warn of a pod or PodGroup, the API server asks it, whatever
// else is said there.
func TestAskedWhereThereIsSomethingToSay(t *testing.T) {
	t.Parallel()
	annotated := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value) }
	}
	labelled := func(key, value string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, key, value) }
	}
	traits := []func(*corev1.Pod){
		annotated("note", "x"), labelled("app", "web"), labelled(keys.QueueLabel, "q"), labelled(keys.GPUGroupLabel, "g"), labelled(keys.GPUGroupLabelPrefix+"a", "g"),
		annotated(keys.PodGroupAnnotation, "g"), annotated(keys.SubGroupLabel, "s"), annotated(keys.MIGResourcePrefix+"1g.5gb", "1"),
		annotated(keys.GPUFractionAnnotation, "2"), annotated(keys.GPUFractionAnnotation, "0.5"), annotated(keys.GPUMemoryAnnotation, "100"), annotated(keys.GPUMemoryAnnotation, ""),
		annotated(keys.GPUFractionDevicesAnnotation, "2"), annotated(keys.GPUFractionContainerAnnotation, "main"), annotated(keys.GPUFractionContainerAnnotation, "none"),
		annotated(keys.SharedGPUConfigMapAnnotation, "m"), annotated(keys.MPSAnnotation, "true"), annotated(keys.MPSAnnotation, "maybe"),
		func(p *corev1.Pod) { p.Spec.NodeName = "n" },
		func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(longGrace + 1) },
		func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = ptr.To(longGrace) },
		func(p *corev1.Pod) { p.Spec.ResourceClaims = make([]corev1.PodResourceClaim, maxClaims+1) },
		func(p *corev1.Pod) { p.Spec.ResourceClaims = make([]corev1.PodResourceClaim, maxClaims) },
		func(p *corev1.Pod) { p.Spec.SchedulerName = "default-scheduler" },
		func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j"}} },
		func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "first"}} },
		func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: keys.VisibleDevicesEnv, Value: "all"}}
		},
		func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{keys.GPUResource: resource.MustParse("1")}
		},
	}
	for _, key := range marks() {
		traits = append(traits, annotated(key, "x"))
	}
	for bits := range 8 {
		o := DefaultOptions()
		o.GPUSharing, o.AuthorizeQueues, o.GuardDevices = bits&1 != 0, bits&2 != 0, bits&4 != 0
		m, v := o.Webhooks(nil)
		if o.AuthorizeQueues { // as New has it
			o.StampQueue = o.QueueLabel
		}
		h, err := NewHandler(o.Rules, Sources{QueueLabel: o.QueueLabel}, nil)
		if err != nil {
			t.Fatal(err)
		}
		complete, judge := doorOf(t, m.Webhooks[0].MatchConditions), doorOf(t, v[0].Webhooks[0].MatchConditions)
		check := func(p, old *corev1.Pod) (told int) {
			t.Helper()
			var before runtime.Object
			var was any
			if old != nil {
				before, was = old, old
			} else if said := says(t, h.mutatePod, p, nil); said != "" {
				told++
				if !complete.asks(t, "pods", "Pod", p, nil) {
					t.Errorf("%+v: nobody asks about %s, and it %s", o.Rules, asJSON(p), said)
				}
			}
			if said := says(t, h.validatePod, p, was); said != "" {
				told++
				if !judge.asks(t, "pods", "Pod", p, before) {
					t.Errorf("%+v: nobody asks about %s, which was %s, and it %s", o.Rules, asJSON(p), asJSON(old), said)
				}
			}
			return told
		}
		plain := func() *corev1.Pod { return pod(t, "metadata: {name: p, namespace: team}") }
		told := 0
		for _, trait := range traits { // each by itself: made, come, gone
			p := plain()
			trait(p)
			told += check(p, nil) + check(p, plain()) + check(plain(), p)
		}
		random := rand.New(rand.NewPCG(1, uint64(bits)))
		for range 300 {
			p, old := plain(), plain()
			for _, trait := range traits {
				if random.IntN(6) == 0 {
					trait(p)
				}
				if random.IntN(6) == 0 {
					trait(old)
				}
			}
			told += check(p, nil) + check(p, old)
		}
		if told < 100 {
			t.Errorf("%+v: something was said of %d pods only", o.Rules, told)
		}
	}
	o := DefaultOptions()
	_, v := o.Webhooks(nil)
	groups := doorOf(t, v[2].Webhooks[0].MatchConditions)
	h, err := NewHandler(o.Rules, Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	specs := []string{
		"{}", "{minMember: 2}", "{minSubGroup: 1}", "{minMember: 2, minSubGroup: 1}", "{subGroups: [{name: a}]}", "{subGroups: [{name: a, minMember: 1}]}",
		"{subGroups: [{name: a, minMember: 1}, {name: b, parent: a, minMember: 1}]}", "{subGroups: [{name: a, parent: a}]}", "{minSubGroup: 9, subGroups: [{name: a, minMember: 1}]}",
	}
	told := 0
	for _, spec := range specs {
		for _, older := range append([]string{""}, specs...) {
			pg, before, was := podGroup(t, spec), runtime.Object(nil), any(nil)
			pg.Name, pg.Annotations = "g", map[string]string{"note": older}
			if older != "" {
				old := podGroup(t, older)
				old.Name = "g"
				before, was = old, old
			}
			if said := says(t, h.validatePodGroup, pg, was); said != "" {
				told++
				if !groups.asks(t, "podgroups", "PodGroup", pg, before) {
					t.Errorf("nobody asks about PodGroup %s, which was %q, and it %s", spec, older, said)
				}
			}
		}
	}
	if told < 10 {
		t.Errorf("something was said of %d PodGroups only", told)
	}
}

// TestNotAskedInVain: of what an installation sees most of, Jobs' pods that ask for whole GPUs, and their gangs, the role is asked nothing.
func TestNotAskedInVain(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	m, v := o.Webhooks(nil)
	made := pod(t, `{metadata: {name: p, labels: {kai.scheduler/queue: q, job-name: j}, finalizers: [batch.kubernetes.io/job-tracking], ownerReferences: [{kind: Job, name: j}]},
		spec: {terminationGracePeriodSeconds: 30, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`)
	grouped := made.DeepCopy()
	metav1.SetMetaDataAnnotation(&grouped.ObjectMeta, keys.PodGroupAnnotation, "g")
	metav1.SetMetaDataLabel(&grouped.ObjectMeta, keys.SubGroupLabel, "s")
	bound := grouped.DeepCopy()
	bound.Spec.NodeName = "n"
	finished := bound.DeepCopy()
	finished.Finalizers = nil
	if doorOf(t, m.Webhooks[0].MatchConditions).asks(t, "pods", "Pod", made, nil) {
		t.Error("a new pod is to be completed")
	}
	judge := doorOf(t, v[0].Webhooks[0].MatchConditions)
	for what, c := range map[string][2]*corev1.Pod{"a new pod": {made, nil}, "its gang": {grouped, made}, "its end": {finished, bound}} {
		var old runtime.Object
		if c[1] != nil {
			old = c[1]
		}
		if judge.asks(t, "pods", "Pod", c[0], old) {
			t.Errorf("%s is to be judged", what)
		}
	}
	groups := doorOf(t, v[2].Webhooks[0].MatchConditions)
	flat, deep := podGroup(t, "{queue: q, minMember: 4}"), podGroup(t, "{queue: q, subGroups: [{name: a, minMember: 1}]}")
	noted := func(pg *v2alpha2.PodGroup) *v2alpha2.PodGroup {
		pg = pg.DeepCopy()
		metav1.SetMetaDataAnnotation(&pg.ObjectMeta, keys.LastStartAnnotation, "x")
		return pg
	}
	if groups.asks(t, "podgroups", "PodGroup", flat, nil) || groups.asks(t, "podgroups", "PodGroup", noted(flat), flat) || groups.asks(t, "podgroups", "PodGroup", noted(deep), deep) {
		t.Error("a PodGroup without subgroups, or one whose spec stays, is to be judged")
	}
}

func asJSON(o any) string {
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
