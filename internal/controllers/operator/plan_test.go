package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/install"
)

// parse reads an object from YAML.
func parse(t *testing.T, text string) object {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	m, err := normal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: m}
}

// ours makes an object one that the Config owns.
func ours(o object) object {
	o.SetLabels(map[string]string{install.LabelPartOf: install.PartOf})
	c := &kaiv1.Config{}
	c.Name, c.UID = kaiv1.ConfigName, "1"
	o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(c, kaiv1.GroupVersion.WithKind("Config"))})
	return o
}

// TestCovers: what is wanted counts, what others added or the API server filled in does not.
func TestCovers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		have, want string
		covered    bool
	}{
		"same":                  {"kind: X\nspec: {a: 1, b: [x]}", "kind: X\nspec: {a: 1, b: [x]}", true},
		"defaults are added":    {"kind: X\nspec: {a: 1, b: [x], c: {d: 1}}", "kind: X\nspec: {a: 1}", true},
		"a value differs":       {"kind: X\nspec: {a: 2}", "kind: X\nspec: {a: 1}", false},
		"a field is gone":       {"kind: X\nspec: {}", "kind: X\nspec: {a: 1}", false},
		"nothing is wanted":     {"kind: X", "kind: X\nspec: {a: '', b: 0, c: false, d: {}, e: []}", true},
		"a part is gone":        {"kind: X", "kind: X\nspec: {a: {b: 1}}", false},
		"plain list is longer":  {"kind: X\nspec: {a: [x, y]}", "kind: X\nspec: {a: [x]}", false},
		"plain list is shorter": {"kind: X\nspec: {a: [x]}", "kind: X\nspec: {a: [x, y]}", false},
		"rules are added":       {"kind: X\nrules: [{verbs: [get]}, {verbs: [create]}]", "kind: X\nrules: [{verbs: [get]}]", false},
		"a sidecar is added":    {"kind: X\nspec: {containers: [{name: side}, {name: a, image: i}]}", "kind: X\nspec: {containers: [{name: a, image: i}]}", true},
		"the image differs":     {"kind: X\nspec: {containers: [{name: a, image: j}]}", "kind: X\nspec: {containers: [{name: a, image: i}]}", false},
		"numbers are numbers":   {"kind: X\nspec: {a: 1.0}", "kind: X\nspec: {a: 1}", true},
		"another type":          {"kind: X\nspec: {a: [1]}", "kind: X\nspec: {a: {b: 1}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := covers(parse(t, c.have).Object, parse(t, c.want).Object); got != c.covered {
				t.Errorf("%v, want %v", got, c.covered)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	at := func(kind, name, rest string) object {
		return parse(t, "apiVersion: v1\nkind: "+kind+"\nmetadata: {name: "+name+", namespace: n}\n"+rest)
	}
	shard := ours(at("ConfigMap", "shard", ""))
	labels := shard.GetLabels()
	labels[install.LabelShard] = "broken"
	shard.SetLabels(labels)
	foreign := at("ConfigMap", "foreign", "")
	foreign.SetLabels(map[string]string{install.LabelPartOf: install.PartOf})
	kept := ours(at("Namespace", "kept", ""))
	going := ours(at("ConfigMap", "going", ""))
	now := metav1.Now()
	going.SetDeletionTimestamp(&now)
	live := []object{
		ours(at("ConfigMap", "same", "data: {a: b}")), ours(at("ConfigMap", "drifted", "data: {a: x}")), ours(at("ConfigMap", "old", "")),
		foreign, kept, shard, going,
	}
	desired := []object{at("ConfigMap", "same", "data: {a: b}"), at("ConfigMap", "drifted", "data: {a: b}"), at("ConfigMap", "new", "data: {a: b}")}
	p := decide(desired, live, map[string]bool{"broken": true})
	names := func(list []object) (out []string) {
		for _, o := range list {
			out = append(out, o.GetName())
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff([]string{"drifted", "new"}, names(p.Apply)); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"old"}, names(p.Remove)); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	if p = decide(desired, live, nil); !slices.Contains(names(p.Remove), "shard") {
		t.Error("the objects of a shard that is gone stay")
	}
}

// TestCloudsKeepTheirNamespaces: rules that clouds put into webhooks are no drift, and survive a repair; others' do neither.
func TestCloudsKeepTheirNamespaces(t *testing.T) {
	t.Parallel()
	hook := func(expressions, policy string) object {
		return parse(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: m}
webhooks: [{name: a, failurePolicy: `+policy+`, namespaceSelector: {matchExpressions: [`+expressions+`]}}]`)
	}
	const own, aks, nobody = `{key: kubernetes.io/metadata.name, operator: NotIn, values: [x]}`, `{key: control-plane, operator: NotIn, values: ["true"]}`, `{key: nowhere, operator: Exists}`
	if p := decide([]object{hook(own, "Fail")}, []object{hook(own+","+aks, "Fail")}, nil); len(p.Apply) > 0 {
		t.Errorf("a cloud's rule is drift: %v", p.Apply[0])
	}
	p := decide([]object{hook(own, "Fail")}, []object{hook(own+","+aks, "Ignore")}, nil)
	if len(p.Apply) != 1 || !covers(p.Apply[0].Object, hook(own+","+aks, "Fail").Object) {
		t.Errorf("the repair takes the cloud's rule away: %v", p.Apply)
	}
	if p := decide([]object{hook(own, "Fail")}, []object{hook(own+","+nobody, "Fail")}, nil); len(p.Apply) != 1 {
		t.Error("a rule that takes the webhook out of work is no drift")
	}
}

// TestStoreIsRetired: a store of metrics stays as long as its samples are worth something, and is then removed.
func TestStoreIsRetired(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	store := func(since, retention string) *plan {
		o := ours(parse(t, "apiVersion: monitoring.coreos.com/v1\nkind: Prometheus\nmetadata: {name: p, namespace: n}\nspec: {retention: "+retention+"}"))
		labels := o.GetLabels()
		labels[install.LabelComponent] = install.Prometheus
		o.SetLabels(labels)
		if since != "" {
			o.SetAnnotations(map[string]string{keys.DeprecationAnnotation: since})
		}
		account := ours(parse(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: p, namespace: n}"))
		account.SetLabels(labels)
		return &plan{Remove: []object{o, account, ours(parse(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: n}"))}}
	}
	for name, c := range map[string]struct {
		since, retention string
		marked           bool
		due              time.Duration
		removed          int
	}{
		"just now":     {"", "2w", true, 14 * 24 * time.Hour, 1},
		"yesterday":    {"2026-02-28T00:00:00Z", "2w", false, 13 * 24 * time.Hour, 1},
		"long ago":     {"2026-02-01T00:00:00Z", "2w", false, 0, 3},
		"no retention": {"2026-02-01T00:00:00Z", "soon", false, 2 * 24 * time.Hour, 1},
		"mixed":        {"2026-02-28T00:00:00Z", "1d12h", false, 12 * time.Hour, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := store(c.since, c.retention)
			mark, due := retire(p, now)
			if (mark != nil) != c.marked || due != c.due || len(p.Remove) != c.removed {
				t.Errorf("marked %v, due %v, %d removed; want %v, %v, %d", mark != nil, due, len(p.Remove), c.marked, c.due, c.removed)
			}
		})
	}
}

// TestConditions: KAI's types and reasons, and what is wrong by name.
func TestConditions(t *testing.T) {
	t.Parallel()
	show := func(s *seen) string {
		var out []string
		for _, c := range s.conditions() {
			out = append(out, c.Type+"="+string(c.Status)+" "+c.Reason)
		}
		return strings.Join(out, ", ")
	}
	const well = "Reconciling=False reconciled, Deployed=True deployed, Available=True available, DependenciesFulfilled=True dependencies_fulfilled, Ready=True ready"
	for _, c := range []struct {
		seen seen
		want string
	}{
		{seen{}, well},
		{seen{Down: []string{"x"}}, strings.NewReplacer("Available=True available", "Available=False not_ready", "Ready=True ready", "Ready=False not_ready").Replace(well)},
		{seen{Failed: []string{"x"}}, strings.NewReplacer("Deployed=True deployed", "Deployed=False not_ready", "Available=True available", "Available=False not_ready", "Ready=True ready", "Ready=False not_ready").Replace(well)},
		{seen{Lacking: []string{"x"}}, strings.Replace(well, "DependenciesFulfilled=True dependencies_fulfilled", "DependenciesFulfilled=False dependencies_missing", 1)},
		{seen{Connection: &connection{}}, strings.Replace(well, "dependencies_fulfilled", "prometheus_connected", 1)},
		{seen{Connection: &connection{Err: errTest}}, strings.Replace(well, "DependenciesFulfilled=True dependencies_fulfilled", "DependenciesFulfilled=False prometheus_connection_failed", 1)},
	} {
		if diff := cmp.Diff(c.want, show(&c.seen)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.seen, diff)
		}
	}
	now := time.Unix(1000, 0)
	s := seen{Down: []string{"Deployment n/d has 0 of 1 pods ready"}}
	first, changed := merge(nil, s.conditions(), 3, now)
	if !changed || first[2].Message != s.Down[0] || first[2].ObservedGeneration != 3 {
		t.Errorf("changed %v, %+v", changed, first[2])
	}
	if _, changed = merge(first, s.conditions(), 3, now.Add(time.Hour)); changed {
		t.Error("time alone is a change")
	}
	second, _ := merge(first, (&seen{Down: []string{"other"}}).conditions(), 3, now.Add(time.Hour))
	if !second[2].LastTransitionTime.Equal(&first[2].LastTransitionTime) {
		t.Error("the time of transition changed without one")
	}
	if reconciling(first, 3) != nil || reconciling(first, 4) == nil {
		t.Error("Reconciling is said once of every generation")
	}
}

func TestDown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"up":      {"kind: Deployment\nmetadata: {name: d, generation: 2}\nspec: {replicas: 1}\nstatus: {observedGeneration: 2, updatedReplicas: 1, conditions: [{type: Available, status: 'True'}]}", ""},
		"stale":   {"kind: Deployment\nmetadata: {name: d, generation: 2}\nspec: {replicas: 1}\nstatus: {observedGeneration: 1, updatedReplicas: 1}", "has just been changed"},
		"rolling": {"kind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2}\nstatus: {updatedReplicas: 1}", "1 of 2 new pods"},
		"before":  {"kind: Deployment\nmetadata: {name: d}\nspec: {replicas: 1}\nstatus: {replicas: 2, updatedReplicas: 1, conditions: [{type: Available, status: 'True'}]}", "still has 1 pods of the version before"},
		"down":    {"kind: Deployment\nmetadata: {name: d}\nspec: {replicas: 1}\nstatus: {updatedReplicas: 1, conditions: [{type: Available, status: 'False'}]}", "0 of 1 pods ready"},
		"agent":   {"kind: DaemonSet\nmetadata: {name: d}\nstatus: {desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 2}", "2 of 3 pods ready"},
		"agents":  {"kind: DaemonSet\nmetadata: {name: d}\nstatus: {desiredNumberScheduled: 3, updatedNumberScheduled: 3, numberAvailable: 3}", ""},
		"other":   {"kind: Service\nmetadata: {name: d, generation: 2}", ""},
	} {
		if got := down(parse(t, "apiVersion: v1\n"+c.text)); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
