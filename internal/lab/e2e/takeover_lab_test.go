//go:build lab

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/lab"
)

// kaiFolder is the folder of KAI's record, "" if it is not beside this checkout.
func kaiFolder(t *testing.T, name string) string {
	t.Helper()
	return compatFolder(t, "kai", name)
}

// compatFolder is a folder of somebody's record, "" if it is not beside this checkout.
func compatFolder(t *testing.T, of, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		folder := filepath.Join(dir, "shared", "compat", of, name)
		if _, err := os.Stat(folder); err == nil {
			return folder
		}
		dir = filepath.Dir(dir)
	}
	t.Logf("%s's %s is not beside this checkout: nothing to do", of, name)
	return ""
}

// recording is the state of an API server as KAI left it.
type recording struct{ objects []*unstructured.Unstructured }

// record reads it. Left out are the Lease of the recorded API server itself, and what every API server makes.
func record(t *testing.T, folder string) *recording {
	t.Helper()
	r := &recording{}
	for _, file := range []string{
		"nodes", "priorityclasses", "queues.scheduling.run.ai", "load.jobs.batch", "load.pods", "load.podgroups.scheduling.run.ai",
		"load.bindrequests.scheduling.run.ai", "reservation.pods",
	} {
		text, err := os.ReadFile(filepath.Join(folder, file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var list unstructured.UnstructuredList
		if err := list.UnmarshalJSON(text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if strings.HasPrefix(o.GetName(), "system-") {
				continue
			}
			if o.GetKind() == "Node" {
				labels := o.GetLabels()
				labels[lab.LabelPool] = "recorded"
				o.SetLabels(labels)
			}
			r.objects = append(r.objects, o)
		}
	}
	for i, name := range []string{"load", keys.ReservationNamespace} {
		r.objects = append(r.objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": name, "uid": fmt.Sprintf("00000000-0000-4000-8000-%012d", i), "creationTimestamp": "2026-11-20T13:56:00Z"},
			"spec":     map[string]any{"finalizers": []any{"kubernetes"}}, "status": map[string]any{"phase": "Active"},
		}})
	}
	return r
}

// of returns the recorded objects of a kind.
func (r *recording) of(kind string) (out []*unstructured.Unstructured) {
	for _, o := range r.objects {
		if o.GetKind() == kind {
			out = append(out, o)
		}
	}
	return out
}

// find returns a recorded object.
func (r *recording) find(t *testing.T, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range r.of(kind) {
		if o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %s %s is recorded", kind, name)
	return nil
}

// halve takes the nodes from so many members of a gang of which none runs on it yet, as if KAI's binder had died before it got
// to them: their BindRequests are open again, or, for the last ones, were never written.
func (r *recording) halve(t *testing.T, job string, open, unwritten int) {
	t.Helper()
	left := open + unwritten
	for _, p := range r.of("Pod") {
		phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
		if left == 0 || p.GetLabels()["load/job"] != job || phase != "Pending" {
			continue
		}
		unstructured.RemoveNestedField(p.Object, "spec", "nodeName")
		unstructured.RemoveNestedField(p.Object, "status", "conditions")
		annotations := p.GetAnnotations()
		delete(annotations, keys.ReceivedResourceTypeAnnotation)
		p.SetAnnotations(annotations)
		b := r.find(t, "BindRequest", p.GetName())
		if left > unwritten {
			unstructured.RemoveNestedField(b.Object, "status")
		} else {
			r.objects = slices.DeleteFunc(r.objects, func(o *unstructured.Unstructured) bool { return o == b })
		}
		left--
	}
	if left > 0 {
		t.Fatalf("%s has %d members too few that do not run yet", job, left)
	}
}

// admit gives pods what KAI's webhook would have given them; the recorded ones of parts of GPUs did not pass it.
func (r *recording) admit(t *testing.T, pods ...string) {
	t.Helper()
	for _, name := range pods {
		p := r.find(t, "Pod", name)
		annotations := p.GetAnnotations()
		annotations[keys.SharedGPUConfigMapAnnotation] = name + "-shared-gpu"
		p.SetAnnotations(annotations)
	}
}

// takeover is what was there when Muster started.
type takeover struct {
	*fixture
	was      map[types.UID]corev1.Pod
	groups   map[string]types.UID      // PodGroups by name
	requests map[string]types.UID      // BindRequests of pods that had a node, by name
	schemas  map[string]map[string]any // KAI's, by kind
}

// TestTakeover loads the state that KAI left under load, with two gangs half bound, and starts Muster on it: nothing is
// evicted, nothing is duplicated, what was decided is carried out, and work goes on. Then the way back: what Muster leaves is
// what KAI can read.
func TestTakeover(t *testing.T) {
	folder, crds := kaiFolder(t, "takeover"), kaiFolder(t, "crds")
	if folder == "" || crds == "" {
		return
	}
	began := time.Now()
	r := record(t, folder)
	jobs := []string{"g-1795183072", "g-1795183195"}
	r.halve(t, jobs[0], 24, 0)
	r.halve(t, jobs[1], 12, 8)
	r.admit(t, "half-1", "half-2")
	w := &takeover{
		fixture: newFixture(t, 0, lab.Options{Fleet: lab.Fleet{Pools: []lab.Pool{}}, Recorded: r.objects}),
		was:     map[types.UID]corev1.Pod{}, groups: map[string]types.UID{}, requests: map[string]types.UID{}, schemas: schemas(t, crds),
	}
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ReservationNamespace, Name: keys.ReservationNamespace}})
	w.tell("load")
	const bound = 172 - 24 - 20
	w.must(t, 30*time.Second, w.allRunning("load", bound))
	w.look()
	t.Logf("after %v: %d pods of KAI's run, %d are half bound", time.Since(began).Round(time.Second), bound, 44)

	muster := newProcess(t, "all", w.lab.Kubeconfig(), "--fake-gpu-nodes")
	muster.start()
	muster.awaitReady(t)
	began = time.Now()
	w.must(t, 30*time.Second, w.allRunning("load", 172+2))
	t.Logf("%v after the start of Muster: both half-bound gangs run whole, and the two halves of a GPU whose requests were open", time.Since(began).Round(100*time.Millisecond))
	for _, size := range []int{8, 64} {
		j := gang("load", fmt.Sprintf("new-%d", size), size, "")
		j.Labels[keys.QueueLabel] = "load-a"
		w.create(t, j)
	}
	lone := gang("load", "lone", 1, "") // which needs no PodGroup
	lone.Labels[keys.QueueLabel] = "load-a"
	w.create(t, lone)
	w.must(t, 20*time.Second, w.allRunning("load", 172+2+8+1))
	w.must(t, 20*time.Second, func() string {
		for _, g := range list(w.fixture, &v2alpha2.PodGroupList{}).Items {
			if strings.HasPrefix(g.Name, "pg-new-64-") && len(g.Status.SchedulingConditions) > 0 {
				return ""
			}
		}
		return "nobody says why the gang of 64 waits"
	})
	t.Logf("evictions %d, duplicates %d", w.evictions(t), w.duplicates(t))
	muster.stop(t)
	w.wayBack(t, 1)

	// A podgrouper that knows nothing of pods that are gangs by themselves makes PodGroups of them, and nothing else happens.
	w.look()
	muster.args = append(muster.args, "--podgroups=all", "--bind-requests=all")
	muster.start()
	muster.awaitReady(t)
	w.must(t, 20*time.Second, func() string {
		for _, p := range w.pods("load") {
			if p.Annotations[keys.PodGroupAnnotation] == "" {
				return "pod " + p.Name + " names no PodGroup"
			}
		}
		return w.allRunning("load", 172+2+8+1)()
	})
	w.evictions(t)
	muster.stop(t)
	w.wayBack(t, 0)
}

// look remembers how things stand.
func (w *takeover) look() {
	for _, p := range w.pods("load") {
		w.was[p.UID] = *p.DeepCopy()
	}
	for _, g := range list(w.fixture, &v2alpha2.PodGroupList{}).Items {
		w.groups[g.Name] = g.UID
	}
	for _, b := range list(w.fixture, &v1alpha2.BindRequestList{}).Items {
		if b.Status.Phase == v1alpha2.BindRequestSucceeded {
			w.requests[b.Name] = b.UID
		}
	}
}

// evictions counts the pods that were there before and are not, are leaving, or are elsewhere.
func (w *takeover) evictions(t *testing.T) (n int) {
	t.Helper()
	var now corev1.PodList
	if err := w.client.List(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	there := map[types.UID]corev1.Pod{}
	for _, p := range now.Items {
		there[p.UID] = p
	}
	for uid, was := range w.was {
		p, ok := there[uid]
		switch {
		case !ok || p.DeletionTimestamp != nil:
			t.Errorf("pod %s is gone or goes", was.Name)
		case was.Spec.NodeName != "" && p.Spec.NodeName != was.Spec.NodeName:
			t.Errorf("pod %s was on %s and is on %s", was.Name, was.Spec.NodeName, p.Spec.NodeName)
		case was.Status.Phase == corev1.PodRunning && p.Status.Phase != corev1.PodRunning:
			t.Errorf("pod %s ran and is %s", was.Name, p.Status.Phase)
		case slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }):
			t.Errorf("pod %s is the target of a disruption", was.Name)
		default:
			continue
		}
		n++
	}
	for _, e := range list(w.fixture, &corev1.EventList{}).Items {
		if e.Reason == keys.EventEvict {
			n++
			t.Errorf("event %s: %s", e.Name, e.Message)
		}
	}
	return n
}

// duplicates counts what there is twice: PodGroups of one owner, pods of a Job beyond its size, BindRequests for pods that had a
// node, reservation pods of one group; and what was made anew although it was there.
func (w *takeover) duplicates(t *testing.T) (n int) {
	t.Helper()
	twice := func(what string, times map[string]int, allowed func(string) int) {
		for name, have := range times { // order: a count
			if have > allowed(name) {
				n++
				t.Errorf("%s of %s: %d", what, name, have)
			}
		}
	}
	once := func(string) int { return 1 }
	owners, members, held := map[string]int{}, map[string]int{}, map[string]int{}
	groups := list(w.fixture, &v2alpha2.PodGroupList{}).Items
	for _, g := range groups {
		owners[string(g.OwnerReferences[0].UID)]++
		if was, known := w.groups[g.Name]; known && was != g.UID {
			n++
			t.Errorf("PodGroup %s was made anew", g.Name)
		}
	}
	if len(groups) != len(w.groups)+2 {
		n++
		t.Errorf("%d PodGroups; there were %d, and 2 are new", len(groups), len(w.groups))
	}
	twice("PodGroups", owners, once)
	for _, p := range w.pods("load") {
		if len(p.OwnerReferences) > 0 {
			members[p.OwnerReferences[0].Name]++
		}
	}
	twice("pods", members, func(job string) int {
		switch {
		case strings.HasPrefix(job, "s-"):
			return 1
		case job == "g-1795183195":
			return 48
		case job == "new-8":
			return 8
		}
		return 64
	})
	for _, p := range w.pods(keys.ReservationNamespace) {
		held[p.Labels[keys.GPUGroupLabel]]++
	}
	twice("reservation pods", held, once)
	for _, b := range list(w.fixture, &v1alpha2.BindRequestList{}).Items {
		if was, known := w.requests[b.Name]; known && was != b.UID {
			n++
			t.Errorf("BindRequest %s was made anew although its pod had a node", b.Name)
		}
	}
	return n
}

// wayBack checks, by a table of conditions, that KAI can go on from what Muster left. So many pods are gangs by themselves: for KAI's
// podgrouper, pods that it has not grouped yet.
func (w *takeover) wayBack(t *testing.T, themselves int) {
	t.Helper()
	var pods corev1.PodList
	var groups v2alpha2.PodGroupList
	var requests v1alpha2.BindRequestList
	if err := w.client.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	if err := w.client.List(t.Context(), &groups); err != nil {
		t.Fatal(err)
	}
	if err := w.client.List(t.Context(), &requests); err != nil {
		t.Fatal(err)
	}
	byName := map[string]*corev1.Pod{}
	for i := range pods.Items {
		byName[pods.Items[i].Namespace+"/"+pods.Items[i].Name] = &pods.Items[i]
	}
	each := map[string]func() []string{
		"every field of our objects is one of KAI's CRDs": func() []string { return w.foreignFields(t) },
		"a BindRequest is carried out, or as KAI's scheduler would have written it": func() (bad []string) {
			for _, b := range requests.Items {
				owner := len(b.OwnerReferences) == 1 && b.OwnerReferences[0].Kind == "Pod" && b.OwnerReferences[0].Name == b.Spec.PodName
				if !owner || b.Name != b.Spec.PodName || b.Labels[keys.SelectedNodeLabel] != b.Spec.SelectedNode || len(b.Finalizers) > 0 {
					bad = append(bad, fmt.Sprintf("%s: %+v", b.Name, b.ObjectMeta))
				}
				p := byName[b.Namespace+"/"+b.Name]
				if b.Status.Phase == v1alpha2.BindRequestSucceeded && (p == nil || p.Spec.NodeName != b.Spec.SelectedNode) {
					bad = append(bad, b.Name+": done, and the pod is not there")
				}
			}
			return bad
		},
		"a PodGroup has the name, owner and annotation by which KAI's podgrouper finds it again": func() (bad []string) {
			for _, g := range groups.Items {
				o := g.OwnerReferences[0]
				top := g.Annotations[keys.TopOwnerAnnotation]
				if len(g.OwnerReferences) != 1 || g.Name != fmt.Sprintf("pg-%s-%s", o.Name, o.UID) || g.Spec.MinMember == nil || g.Spec.Queue == "" || len(g.Finalizers) > 0 ||
					!strings.Contains(top, "name: "+o.Name+"\n") || !strings.Contains(top, "uid: "+string(o.UID)+"\n") || !strings.Contains(top, "kind: "+o.Kind) {
					bad = append(bad, fmt.Sprintf("%s: %+v", g.Name, g.ObjectMeta))
				}
			}
			return bad
		},
		"times in annotations are RFC 3339": func() (bad []string) {
			for _, g := range groups.Items {
				for _, key := range []string{keys.LastStartAnnotation, keys.LastEvictionAnnotation, keys.StaleSinceAnnotation} {
					if text, there := g.Annotations[key]; there {
						if _, err := time.Parse(time.RFC3339, text); err != nil {
							bad = append(bad, g.Name+": "+key+"="+text)
						}
					}
				}
			}
			return bad
		},
		"a pod with a node names its PodGroup, and what it received": func() (bad []string) {
			lone := 0
			for _, p := range pods.Items {
				if p.Spec.SchedulerName != keys.SchedulerName {
					continue
				}
				received, want := p.Annotations[keys.ReceivedResourceTypeAnnotation], "Regular"
				if p.Annotations[keys.GPUFractionAnnotation] != "" {
					want = "Fraction"
				}
				if kai.OwnGang(&p) != nil && p.Annotations[keys.PodGroupAnnotation] == "" { // of which KAI knows no more than of any pod without one
					lone++
				} else if named := p.Annotations[keys.PodGroupAnnotation] != ""; !named && p.Spec.NodeName != "" || gangOf(&p) == "" {
					bad = append(bad, p.Name+" is in no gang") // one that waits need not name that of its owner
				}
				if p.Spec.NodeName != "" && received != want || want == "Fraction" && p.Spec.NodeName != "" && p.Labels[keys.GPUGroupLabel] == "" {
					bad = append(bad, fmt.Sprintf("%s: %+v", p.Name, p.ObjectMeta))
				}
			}
			if lone != themselves {
				bad = append(bad, fmt.Sprintf("%d pods are gangs by themselves, want %d", lone, themselves))
			}
			return bad
		},
		"a reservation pod is KAI's: named by its node and group, labelled, and its device is on record": func() (bad []string) {
			for _, p := range pods.Items {
				if p.Namespace != keys.ReservationNamespace {
					continue
				}
				group := p.Labels[keys.GPUGroupLabel]
				if p.Name != reservationName(p.Spec.NodeName, group) || p.Labels["app"] != "kai-resource-reservation" || p.Annotations[keys.ReservedGPUAnnotation] == "" || len(p.Finalizers) > 0 {
					bad = append(bad, fmt.Sprintf("%s: %+v", p.Name, p.ObjectMeta))
				}
			}
			return bad
		},
		"nobody holds a Lease of KAI's": func() (bad []string) {
			for _, lease := range leases(t, w.fixture) {
				if strings.Contains(lease, "kai") {
					bad = append(bad, lease)
				}
			}
			return bad
		},
		"no half-bound gang is left": func() (bad []string) {
			with := map[string][2]int{}
			for _, p := range pods.Items {
				key := gangOf(&p)
				n := with[key]
				if p.Spec.NodeName != "" {
					n[0]++
				} else {
					n[1]++
				}
				with[key] = n
			}
			for key, n := range with { // order: sorted when it is told
				if key != "" && n[0] > 0 && n[1] > 0 {
					bad = append(bad, fmt.Sprintf("%s: %d with a node, %d without", key, n[0], n[1]))
				}
			}
			return bad
		},
	}
	for _, condition := range slices.Sorted(maps.Keys(each)) {
		bad := each[condition]()
		slices.Sort(bad)
		if len(bad) > 0 {
			t.Errorf("the way back: %s: %d do not: %s", condition, len(bad), strings.Join(bad[:min(3, len(bad))], "; "))
			continue
		}
		t.Logf("the way back: %s: ok", condition)
	}
}

// foreignFields names the fields of our objects, as the API server has them, that KAI's definitions do not know.
func (w *takeover) foreignFields(t *testing.T) (bad []string) {
	t.Helper()
	for kind, schema := range w.schemas {
		l := &unstructured.UnstructuredList{}
		l.SetAPIVersion(map[string]string{"PodGroup": "scheduling.run.ai/v2alpha2", "BindRequest": "scheduling.run.ai/v1alpha2", "Queue": "scheduling.run.ai/v2"}[kind])
		l.SetKind(kind + "List")
		if err := w.client.List(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		if len(l.Items) == 0 {
			t.Errorf("there is no %s", kind)
		}
		for i := range l.Items {
			o := l.Items[i].Object
			for _, part := range []string{"spec", "status"} {
				for _, field := range beyond(schema["properties"].(map[string]any)[part], o[part], part) {
					bad = append(bad, fmt.Sprintf("%s %s: %s", kind, l.Items[i].GetName(), field))
				}
			}
		}
	}
	return bad
}

// beyond lists the fields of a value that a schema does not have.
func beyond(schema, value any, path string) (out []string) {
	s, ok := schema.(map[string]any)
	if !ok || s["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	switch v := value.(type) {
	case map[string]any:
		properties, structured := s["properties"].(map[string]any)
		for name, field := range v { // order: sorted by who asks
			switch {
			case !structured:
				out = append(out, beyond(s["additionalProperties"], field, path+"."+name)...)
			case properties[name] == nil:
				out = append(out, path+"."+name)
			default:
				out = append(out, beyond(properties[name], field, path+"."+name)...)
			}
		}
	case []any:
		for _, item := range v {
			out = append(out, beyond(s["items"], item, path+"[]")...)
		}
	}
	return out
}

// schemas are those of KAI's definitions whose objects Muster writes, by kind.
func schemas(t *testing.T, folder string) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for kind, file := range map[string]string{"PodGroup": "scheduling.run.ai_podgroups.yaml", "BindRequest": "scheduling.run.ai_bindrequests.yaml", "Queue": "scheduling.run.ai_queues.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Storage bool `json:"storage"`
					Schema  struct {
						Open map[string]any `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				out[kind] = v.Schema.Open
			}
		}
		if out[kind] == nil {
			t.Fatalf("%s has no stored version", file)
		}
	}
	return out
}

// reservationName is what KAI calls the pod that holds a device.
func reservationName(node, group string) string {
	sum := sha256.Sum256([]byte(node + "/" + group))
	return "gpu-reservation-" + hex.EncodeToString(sum[:8])
}

// leases are the Leases that somebody holds, "namespace/name held by whom".
func leases(t *testing.T, w *fixture) (held []string) {
	t.Helper()
	var all coordinationv1.LeaseList
	if err := w.client.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
			held = append(held, l.Namespace+"/"+l.Name+" held by "+*l.Spec.HolderIdentity)
		}
	}
	return held
}
