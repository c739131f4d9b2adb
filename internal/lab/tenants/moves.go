package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// How much a tenant has at once, so that an hour of this fits a small etcd.
const (
	mostPods    = 40
	mostJobs    = 12
	mostGroups  = 30
	mostRequest = 10
	mostOthers  = 10
)

// moodTurns is for how many turns a tenant keeps to the same few marks.
const moodTurns = 10

// mood is what a tenant keeps writing for a while: the same marks on whatever it touches. What comes of two marks together
// shows only when both are on the same pods.
type mood struct{ pods, owners []mark }

// mark is a key with a value.
type mark struct {
	key   Key
	text  string // the whole key
	value string
	none  bool // take it off
}

// move is a kind of turn, with its weight.
type move struct {
	weight int
	play   func(*turn)
}

func moves() []move {
	return []move{
		{14, (*turn).submit},
		{12, (*turn).pod},
		{26, (*turn).markPods},
		{6, (*turn).markOwner},
		{8, (*turn).group},
		{7, (*turn).own},
		{6, (*turn).request},
		{7, (*turn).bind},
		{8, (*turn).remove},
		{6, (*turn).status},
		{5, (*turn).resize},
		{4, (*turn).again},
		{8, (*turn).other},
		{2, (*turn).flood},
		{5, (*turn).beyond},
	}
}

// play makes one move.
func (u *turn) play() {
	if u.o.Harmless {
		u.harmless()
		return
	}
	all := moves()
	total := 0
	for _, m := range all {
		total += m.weight
	}
	at := u.IntN(total)
	for _, m := range all {
		if at -= m.weight; at < 0 {
			m.play(u)
			return
		}
	}
}

func (u *turn) chance(percent int) bool { return u.IntN(100) < percent }

func pick[T any](u *turn, from ...T) T { return from[u.IntN(len(from))] }

// mood draws the marks for the next turns.
func (u *turn) mood() mood {
	return mood{pods: u.few(Pods), owners: u.marks(Workloads|Groups, 1+u.IntN(2))}
}

// few draws some marks: mostly one to three, sometimes many, which show what comes of keys together. Where only Muster may write
// a key, one of those has all refused that come with it; therefore half of the many are users' alone.
func (u *turn) few(on Carrier) []mark {
	switch u.IntN(4) {
	case 0:
		return u.marks(on, 4+u.IntN(6))
	case 1:
		return slices.DeleteFunc(u.marks(on, 4+u.IntN(8)), func(m mark) bool { return m.key.Ours })
	}
	return u.marks(on, 1+u.IntN(3))
}

// marks draws n keys of a carrier with values. Keys whose values name things that exist come up more often.
func (u *turn) marks(on Carrier, n int) (out []mark) {
	var bag []Key
	for _, k := range keysOn(on) {
		bag = append(bag, k)
		if slices.ContainsFunc(k.Values, func(v string) bool { return strings.HasPrefix(v, "$") || v == keys.ReservationNamespace }) {
			bag = append(bag, k, k)
		}
	}
	for range n {
		k := pick(u, bag...)
		m := mark{key: k, text: k.Text, value: u.value(k), none: u.chance(8)}
		if strings.HasSuffix(m.text, "/") {
			m.text += "forged"
		}
		out = append(out, m)
	}
	return out
}

func (u *turn) value(k Key) string {
	v := pick(u, "", "x", "true", "0", "-1", "1h", "99999999999999999999", "$group", "$uid")
	switch {
	case k.Ours && u.chance(40):
		v = "forged"
	case len(k.Values) > 0 && u.chance(85):
		v = pick(u, k.Values...)
	}
	for _, word := range []string{"$queue", "$group", "$pod", "$node", "$namespace", "$uid"} {
		if strings.Contains(v, word) {
			v = strings.ReplaceAll(v, word, u.existing(word))
		}
	}
	return v
}

// existing is the name of something that exists.
func (u *turn) existing(word string) string {
	switch word {
	case "$queue":
		if u.chance(60) {
			return pick(u, u.Queues...)
		}
		return pick(u, u.o.Queues...)
	case "$namespace":
		return pick(u, append([]string{u.Namespace}, u.o.Honest...)...)
	case "$node":
		return u.node()
	case "$group":
		if o := one(u, groupsOf(u, u.Namespace)); o != nil {
			return o.Name
		}
	case "$pod":
		if o := one(u, podsOf(u, u.Namespace)); o != nil {
			return o.Name
		}
	case "$uid":
		if o := one(u, podsOf(u, u.anywhere())); o != nil {
			return string(o.UID)
		}
	}
	return "nothing"
}

func (u *turn) node() string {
	var nodes corev1.NodeList
	if err := u.o.Read.List(u.ctx, &nodes); err != nil || len(nodes.Items) == 0 {
		return "nowhere"
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return pick(u, nodes.Items...).Name
}

func (u *turn) anywhere() string {
	if u.chance(70) {
		return u.Namespace
	}
	return pick(u, u.o.Honest...)
}

func podsOf(u *turn, ns string) []corev1.Pod {
	var l corev1.PodList
	_ = u.o.Read.List(u.ctx, &l, client.InNamespace(ns))
	slices.SortFunc(l.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return l.Items
}

func jobs(u *turn, ns string) []batchv1.Job {
	var l batchv1.JobList
	_ = u.o.Read.List(u.ctx, &l, client.InNamespace(ns))
	slices.SortFunc(l.Items, func(a, b batchv1.Job) int { return strings.Compare(a.Name, b.Name) })
	return l.Items
}

func groupsOf(u *turn, ns string) []v2alpha2.PodGroup {
	var l v2alpha2.PodGroupList
	_ = u.o.Read.List(u.ctx, &l, client.InNamespace(ns))
	slices.SortFunc(l.Items, func(a, b v2alpha2.PodGroup) int { return strings.Compare(a.Name, b.Name) })
	return l.Items
}

func requestsOf(u *turn, ns string) []v1alpha2.BindRequest {
	var l v1alpha2.BindRequestList
	_ = u.o.Read.List(u.ctx, &l, client.InNamespace(ns))
	slices.SortFunc(l.Items, func(a, b v1alpha2.BindRequest) int { return strings.Compare(a.Name, b.Name) })
	return l.Items
}

// one draws an element; nil from an empty list.
func one[T any](u *turn, from []T) *T {
	if len(from) == 0 {
		return nil
	}
	return &from[u.IntN(len(from))]
}

// name is new with each turn.
func (u *turn) name(kind string) string { return fmt.Sprintf("%s-%d-%d", kind, u.o.Seed%1000, u.n) }

// put writes marks into an object that is to be created.
func put(o client.Object, marks []mark) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	for _, m := range marks {
		if m.none {
			continue
		}
		if m.key.Label != 0 {
			labels[m.text] = m.value
		}
		if m.key.Annotation != 0 {
			annotations[m.text] = m.value
		}
	}
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}

// body is a merge patch of marks.
func body(marks []mark, more map[string]any) []byte {
	labels, annotations, meta := map[string]any{}, map[string]any{}, map[string]any{}
	for _, m := range marks {
		var v any = m.value
		if m.none {
			v = nil
		}
		if m.key.Label != 0 {
			labels[m.text] = v
		}
		if m.key.Annotation != 0 {
			annotations[m.text] = v
		}
	}
	meta["labels"], meta["annotations"] = labels, annotations
	maps.Copy(meta, more)
	out, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		panic(err) // strings alone
	}
	return out
}

func told(marks []mark) string {
	var out []string
	for _, m := range marks {
		if m.none {
			out = append(out, m.text+"-")
		} else {
			out = append(out, m.text+"="+brief(m.value, 40))
		}
	}
	return strings.Join(out, " ")
}

// markPods changes labels and annotations of pods: of one, of all of an owner, of all that are on nodes, of all.
func (u *turn) markPods() {
	all := podsOf(u, u.Namespace)
	some := one(u, all)
	if some == nil {
		return
	}
	marks := u.now.pods
	if u.chance(30) {
		marks = u.few(Pods)
	}
	var which func(*corev1.Pod) bool
	switch u.IntN(4) {
	case 0:
		which = func(p *corev1.Pod) bool { return p.UID == some.UID }
	case 1:
		owner := metav1.GetControllerOf(some)
		which = func(p *corev1.Pod) bool {
			o := metav1.GetControllerOf(p)
			return owner == nil && o == nil || owner != nil && o != nil && o.UID == owner.UID
		}
	case 2:
		which = func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning }
	default:
		which = func(*corev1.Pod) bool { return true }
	}
	more := map[string]any{}
	switch {
	case u.chance(4):
		more["finalizers"] = []string{"tenants.example/hold"}
	case u.chance(10):
		more["finalizers"] = nil
	}
	if u.chance(3) {
		more["annotations"] = map[string]any{"tenants.example/huge": strings.Repeat("x", 1<<(10+u.IntN(8)))}
	}
	text, what := body(marks, more), told(marks)
	if len(more) > 0 {
		what += " and more"
	}
	const most = 12 // so that one turn is no minute
	done := 0
	for i := range all {
		if p := &all[i]; which(p) && done < most {
			done++
			_ = u.patch("patch labels of pods", named(&corev1.Pod{}, u.Namespace, p.Name), what, text)
		}
	}
}

// markOwner changes labels and annotations of a Job, a PodGroup or a BindRequest.
func (u *turn) markOwner() {
	marks := append(u.marks(Workloads|Groups|Requests, 1+u.IntN(2)), u.now.owners...)
	text, what := body(marks, nil), told(marks)
	switch u.IntN(3) {
	case 0:
		if j := one(u, jobs(u, u.Namespace)); j != nil {
			_ = u.patch("patch labels of Jobs", named(&batchv1.Job{}, u.Namespace, j.Name), what, text)
		}
	case 1:
		if g := one(u, groupsOf(u, u.Namespace)); g != nil {
			_ = u.patch("patch labels of PodGroups", named(&v2alpha2.PodGroup{}, u.Namespace, g.Name), what, text)
		}
	default:
		if r := one(u, requestsOf(u, u.Namespace)); r != nil {
			_ = u.patch("patch labels of BindRequests", named(&v1alpha2.BindRequest{}, u.Namespace, r.Name), what, text)
		}
	}
}

func named[T client.Object](o T, ns, name string) T {
	o.SetNamespace(ns)
	o.SetName(name)
	return o
}

// own lets pods be owned by anything.
func (u *turn) own() {
	if p := one(u, podsOf(u, u.Namespace)); p != nil {
		refs := []metav1.OwnerReference{u.owner(p)}
		if u.chance(20) {
			refs = append(refs, u.owner(p))
		}
		_ = u.patch("patch owners of pods", named(&corev1.Pod{}, u.Namespace, p.Name), describe(refs), body(nil, map[string]any{"ownerReferences": refs}))
	}
}

func describe(refs []metav1.OwnerReference) string {
	var out []string
	for _, r := range refs {
		out = append(out, "owner="+r.Kind+"/"+r.Name)
	}
	return strings.Join(out, " ")
}

// owner is a reference to something: an object of this namespace or another, one without a namespace, a kind that there is not,
// or the object itself.
func (u *turn) owner(self *corev1.Pod) metav1.OwnerReference {
	ref := func(api, kind string, o client.Object) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: api, Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: ptr.To(u.chance(70))}
	}
	switch u.IntN(9) {
	case 0, 1, 2:
		if o := one(u, jobs(u, u.Namespace)); o != nil {
			return ref("batch/v1", "Job", o)
		}
	case 3:
		if o := one(u, jobs(u, pick(u, u.o.Honest...))); o != nil {
			return ref("batch/v1", "Job", o)
		}
	case 4, 5:
		var l corev1.NamespaceList
		if u.o.Read.List(u.ctx, &l) == nil && len(l.Items) > 0 {
			slices.SortFunc(l.Items, func(a, b corev1.Namespace) int { return strings.Compare(a.Name, b.Name) })
			return ref("v1", "Namespace", one(u, l.Items))
		}
	case 6:
		if o := one(u, podsOf(u, u.anywhere())); o != nil {
			return ref("v1", "Pod", o)
		}
	case 7:
		if self != nil {
			return ref("v1", "Pod", self)
		}
	}
	return metav1.OwnerReference{
		APIVersion: fmt.Sprintf("g%d.example.com/v1", u.IntN(50)), Kind: pick(u, "Ghost", "Queue", "Job"), Name: u.name("ghost"), UID: "00000000-0000-4000-8000-000000000000",
		Controller: ptr.To(true),
	}
}

// remove deletes something.
func (u *turn) remove() {
	grace := pick(u, nil, nil, ptr.To(int64(0)), ptr.To(int64(3600)))
	o := client.DeleteOptions{GracePeriodSeconds: grace}
	background := metav1.DeletePropagationBackground
	del := func(kind string, what client.Object, opts client.DeleteOptions) {
		_ = u.write(kind, path(what), "", func(ctx context.Context) error { return u.Client.Delete(ctx, what, &opts) })
	}
	switch u.IntN(6) {
	case 0, 1:
		if p := one(u, podsOf(u, u.Namespace)); p != nil {
			del("delete pods", named(&corev1.Pod{}, u.Namespace, p.Name), o)
		}
	case 2, 3:
		if j := one(u, jobs(u, u.Namespace)); j != nil {
			o.PropagationPolicy = &background
			if u.chance(30) {
				o.PropagationPolicy = ptr.To(metav1.DeletePropagationOrphan)
			}
			del("delete Jobs", named(&batchv1.Job{}, u.Namespace, j.Name), o)
		}
	case 4:
		if g := one(u, groupsOf(u, u.Namespace)); g != nil {
			del("delete PodGroups", named(&v2alpha2.PodGroup{}, u.Namespace, g.Name), client.DeleteOptions{})
		}
	default:
		if r := one(u, requestsOf(u, u.Namespace)); r != nil {
			kind := "delete BindRequests"
			if u.o.Auditor.o.Enforce {
				kind = "beyond: " + kind
			}
			del(kind, named(&v1alpha2.BindRequest{}, u.Namespace, r.Name), client.DeleteOptions{})
		}
	}
}

// harmless makes one write that nobody reads.
func (u *turn) harmless() {
	m := named(&corev1.ConfigMap{}, u.Namespace, fmt.Sprintf("note-%d", u.n%50))
	m.Data = map[string]string{"n": fmt.Sprint(u.n)}
	if u.n < 50 {
		_ = u.write("harmless ConfigMap", path(m), "", func(ctx context.Context) error { return u.Client.Create(ctx, m) })
		return
	}
	_ = u.write("harmless ConfigMap", path(m), "", func(ctx context.Context) error { return u.Client.Update(ctx, m) })
}
