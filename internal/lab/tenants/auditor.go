package tenants

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

const (
	// settle is how long the auditor waits before it blames anybody for a binding: the watches of other kinds, and the answers
	// to the fuzzer's own writes, come by other ways than the pods.
	settle = 2 * time.Second
	// partial is how long a gang of an honest tenant may be bound in part.
	partial = 20 * time.Second
	// lag is how long a queue's status may differ from what is on the nodes.
	lag = 30 * time.Second
	// brieflyLeaving is the rest of a grace within which a pod that is being deleted has as good as given its room back.
	brieflyLeaving = time.Minute
)

// Audit says who is who.
type Audit struct {
	// Tenants are the namespaces that mean no good, each with the queues that it may use.
	Tenants map[string][]string
	// Honest are the namespaces of tenants that stay within their quotas: nobody evicts them.
	Honest []string
	// Enforce says that identity is enforced, Authorize that the right to use a queue is.
	Enforce, Authorize bool
	// Charge is the annotation in which a bound pod carries the queue that pays for it; "" for none.
	Charge string
	// Risk is the reason of the event by which a PodGroup is told that its pods may lose their room although it reads otherwise.
	Risk string
}

// Violation is a promise that was broken, once for each object.
type Violation struct {
	Promise, Object, What string
	At                    time.Time
	Evidence              []string
}

// Kind is what violations of one cause have in common: the promise, and how what happened begins, without numbers.
func (v *Violation) Kind() string {
	words := strings.Fields(v.What)
	return v.Promise + ": " + strings.Join(words[:min(5, len(words))], " ")
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s: %s: %s\n      %s", v.Promise, v.Object, v.What, strings.Join(v.Evidence, "\n      "))
}

// Auditor follows objects as the API server has them and holds them against the promises. Its methods may be called from
// several goroutines.
type Auditor struct {
	o Audit
	// evidence are the last effective writes about words.
	evidence func(words ...string) []string

	mu         sync.Mutex
	pods       map[types.UID]*holder
	nodes      map[string]room
	queues     map[string]*queuev2.Queue
	groups     map[string]*groupSeen
	chosen     map[string][]string // nodes that the scheduler chose for a pod, by its UID
	brought    map[string]int      // how many pods a bundle's Bindings were for, by its id
	forged     map[types.UID]string
	forgedFor  map[string]bool
	tried      map[types.UID]bool
	bound      map[types.UID]bool
	disturbed  map[types.UID]bool
	unequal    map[string]time.Time
	beyond     map[string]time.Time // since when queues hold more as non-preemptible than their quota
	waiting    []*holder
	violations []*Violation
	blamed     map[string]bool
	latest     time.Time // of what was seen
	binds      int
	overlaps   int           // bindings beyond a limit only for as long as others took to leave
	slowest    time.Duration // that a status differed and came right again
}

// room is what a node offers: thousandths of GPUs and CPUs, bytes, pods.
type room struct{ gpu, cpu, memory, pods int64 }

func (r *room) add(o room, sign int64) {
	r.gpu += sign * o.gpu
	r.cpu += sign * o.cpu
	r.memory += sign * o.memory
	r.pods += sign * o.pods
}

// holder is a pod.
type holder struct {
	uid               types.UID
	namespace, name   string
	node, queue, gang string
	member            string // the gang that it says it is in now
	asks              string // the queue that its label names
	former            string // the one that it said before, until changed
	changed           time.Time
	ours, fixed, made bool // made: it came with a node
	takes             room // of its node
	gpu               int64
	loose             int64  // by how much gpu may be wrong
	alone             string // what it says of the gang that it is by itself
	marks             string
	set               string    // subgroup: what its label says now, or what it was bound for if it says so itself
	unknown           time.Time // since when there is no such subgroup
	leaving           bool
	asked             bool      // to leave
	recorded          bool      // as non-preemptible, by what it carried when it was bound
	until             time.Time // when its grace is over, if it is leaving
	over              bool      // it ended
	at, doubted       time.Time // when it was bound, and when its last doubt came
	forced            bool      // no decision of ours
	charge            string    // what its annotation said then
	bundle            string    // what its annotation said before it was bound; then, what the Binding brought, "" for nothing new
	doubts            []doubt
}

func (h *holder) String() string { return h.namespace + "/" + h.name }

// doubt is a violation unless something explains it: of a limit, that who held too much was on its way out.
type doubt struct {
	promise, what string
	queue         string // whose limit it is about; "" for none
	limit         float64
	beside        []*holder // of a quota: all who counted as non-preemptible then, itself among them
	evicted       bool
}

// groupSeen is a PodGroup, or a pod that is a gang by itself.
type groupSeen struct {
	alone      bool
	queue, was string
	moved      time.Time
	fixed      bool
	turned     time.Time // preemptible or not, when it was the other last
	least      int
	partial    time.Time // since when it is bound in part
	whole      bool
	gone       bool
	sets       map[string]bool
	told       bool      // that its pods may lose their room
	shifted    time.Time // when pods of it were moved last, to room that they have elsewhere
}

// NewAuditor makes an Auditor. Seen is to be called for each object of the kinds Pod, Node, BindRequest, ConfigMap, PodGroup, Queue and Event.
func NewAuditor(o Audit) *Auditor {
	return &Auditor{
		o: o, pods: map[types.UID]*holder{}, nodes: map[string]room{}, queues: map[string]*queuev2.Queue{}, groups: map[string]*groupSeen{},
		chosen: map[string][]string{}, brought: map[string]int{}, forged: map[types.UID]string{}, forgedFor: map[string]bool{}, tried: map[types.UID]bool{}, bound: map[types.UID]bool{},
		disturbed: map[types.UID]bool{}, unequal: map[string]time.Time{}, beyond: map[string]time.Time{}, blamed: map[string]bool{},
	}
}

// Asks sets who is asked for the writes behind a violation.
func (a *Auditor) Asks(evidence func(words ...string) []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.evidence = evidence
}

// Forged says that a BindRequest is a tenant's, for a pod by UID.
func (a *Auditor) Forged(request types.UID, pod string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forged[request] = pod
	a.forgedFor[pod] = true
}

// Tried says that a tenant is about to bind a pod.
func (a *Auditor) Tried(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tried[pod] = true
}

// Bound says that a tenant has bound a pod, and whether it is ours.
func (a *Auditor) Bound(pod types.UID, name string, ours bool) {
	a.mu.Lock()
	a.bound[pod] = true
	a.mu.Unlock()
	if ours && a.o.Enforce {
		a.blame("S8", name, time.Now(), "a tenant bound a pod of ours by its own Binding")
	}
}

// Disturbed says that a tenant wrote on the phase of a pod of the node.
func (a *Auditor) Disturbed(pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.disturbed[pod] = true
}

// Said says that a tenant's word took effect on a pod, by which less or more would be known of what it has of its node. The pod is as
// the API server had it then.
func (a *Auditor) Said(p *corev1.Pod, field string) {
	if a.o.Enforce && p.Spec.NodeName != "" && p.Spec.SchedulerName == keys.SchedulerName {
		a.blame("S8", p.Namespace+"/"+p.Name, time.Now(), "a tenant said of a bound pod what its node says: %s", field)
	}
}

// blame notes a violation.
func (a *Auditor) blame(promise, object string, now time.Time, format string, args ...any) {
	a.mu.Lock()
	v := a.note(promise, object, now, format, args...)
	evidence := a.evidence
	a.mu.Unlock()
	if v != nil && evidence != nil {
		v.Evidence = append(v.Evidence, evidence(object)...)
	}
}

// note is blame for one who holds the lock; it returns nil for what is known.
func (a *Auditor) note(promise, object string, now time.Time, format string, args ...any) *Violation {
	v := &Violation{Promise: promise, Object: object, What: fmt.Sprintf(format, args...), At: now}
	key := promise + " " + object + " " + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, brief(v.What, 40))
	if a.blamed[key] {
		return nil
	}
	a.blamed[key] = true
	a.violations = append(a.violations, v)
	return v
}

// Violations are those found so far.
func (a *Auditor) Violations() []*Violation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.violations)
}

// Seen takes in an object as the watch of its kind shows it.
func (a *Auditor) Seen(object client.Object, deleted bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.latest = now
	switch o := object.(type) {
	case *corev1.Pod:
		a.pod(o, deleted, now)
	case *corev1.Node:
		a.nodes[o.Name] = room{
			gpu: milli(o.Status.Allocatable[keys.GPUResource]), cpu: milli(o.Status.Allocatable[corev1.ResourceCPU]),
			memory: value(o.Status.Allocatable[corev1.ResourceMemory]), pods: value(o.Status.Allocatable[corev1.ResourcePods]),
		}
	case *queuev2.Queue:
		if deleted {
			delete(a.queues, o.Name)
		} else {
			a.queues[o.Name] = o
		}
	case *v2alpha2.PodGroup:
		a.group(o, deleted, now)
	case *corev1.Event:
		if g := a.groups[o.InvolvedObject.Namespace+"/"+o.InvolvedObject.Name]; g != nil && o.InvolvedObject.Kind == "PodGroup" {
			g.told = g.told || o.Reason == a.o.Risk
			if o.Reason == keys.EventEvict && o.Annotations[keys.EvictorActionAnnotation] == "consolidation" {
				g.shifted = now
			}
		}
	case *v1alpha2.BindRequest:
		if _, forged := a.forged[o.UID]; forged || deleted {
			return
		}
		for _, r := range o.OwnerReferences {
			a.choose(string(r.UID), o.Spec.SelectedNode)
		}
	case *corev1.ConfigMap: // a decision about a gang (ADR 18)
		if deleted || o.Namespace != keys.Namespace || o.Labels[keys.GangRecordLabel] == "" {
			return
		}
		if r, err := kai.ReadGangRecord(o, kai.Partition{}); err == nil {
			for i := range r.Members {
				a.choose(string(r.Members[i].PodUID), r.Members[i].Node)
			}
		}
	}
}

// choose notes that a pod was to go to a node.
func (a *Auditor) choose(uid, node string) {
	if nodes := a.chosen[uid]; !slices.Contains(nodes, node) {
		a.chosen[uid] = append(nodes, node)
	}
}

func milli(q resource.Quantity) int64 { return q.MilliValue() }

func value(q resource.Quantity) int64 { return q.Value() }

func (a *Auditor) group(g *v2alpha2.PodGroup, deleted bool, now time.Time) {
	key := g.Namespace + "/" + g.Name
	s := a.groups[key]
	if deleted { // its pods were bound for it all the same
		if s != nil {
			s.gone = true
		}
		return
	}
	if s == nil {
		s = &groupSeen{queue: g.Spec.Queue, was: g.Spec.Queue}
		a.groups[key] = s
	}
	s.alone = false
	s.is(&g.Spec, now)
	s.sets = map[string]bool{"": true, "default": true}
	for _, g := range g.Spec.SubGroups {
		s.sets[g.Name] = true
	}
	s.least = 1
	if g.Spec.MinMember != nil {
		s.least = int(*g.Spec.MinMember)
	}
}

// is takes in what a gang says of its queue, and whether it is preemptible.
func (s *groupSeen) is(spec *v2alpha2.PodGroupSpec, now time.Time) {
	s.gone = false
	if s.queue != spec.Queue {
		s.was, s.queue, s.moved = s.queue, spec.Queue, now
	}
	// A class without a value of its own here is one of ours, or none.
	fixed := spec.Preemptibility == v2alpha2.NonPreemptible ||
		spec.Preemptibility == "" && (spec.PriorityClassName == keys.PriorityClassBuild || spec.PriorityClassName == keys.PriorityClassInference)
	if s.fixed != fixed && s.sets != nil {
		s.turned = now
	}
	s.fixed = fixed
}

// aloneText is what a pod that is a gang by itself says in its annotation (ADR 18), as far as it is looked at here.
type aloneText struct {
	Pod  types.UID             `json:"pod"`
	Name string                `json:"name"`
	Spec v2alpha2.PodGroupSpec `json:"spec"`
}

// aloneIn returns what a pod says of the gang that it is by itself; nil for none. What names another pod is none.
func aloneIn(p *corev1.Pod) *aloneText {
	var t aloneText
	if json.Unmarshal([]byte(p.Annotations[keys.OwnGangAnnotation]), &t) != nil || t.Pod != p.UID || t.Name == "" {
		return nil
	}
	return &t
}

// alone takes in the gang that a pod is by itself, as if it were a PodGroup; where there is one of that name, that counts. The write that gives the pod
// its node may be the first that says so: whom it was charged to by then is what it says there.
func (a *Auditor) alone(h *holder, p *corev1.Pod, deleted bool, now time.Time) {
	text := p.Annotations[keys.OwnGangAnnotation]
	if text == h.alone && !deleted {
		return
	}
	h.alone = text
	t := aloneIn(p)
	if t == nil {
		return
	}
	key := p.Namespace + "/" + t.Name
	s := a.groups[key]
	switch {
	case s != nil && !s.alone && !s.gone:
		return
	case deleted:
		if s != nil {
			s.gone = true
		}
		return
	case s == nil:
		s = &groupSeen{queue: t.Spec.Queue, was: t.Spec.Queue}
		a.groups[key] = s
	}
	s.alone, s.least = true, 1
	s.is(&t.Spec, now)
	s.sets = map[string]bool{"": true, "default": true}
}

// memberOf returns the gang that a pod says it is in: the PodGroup that it names, or what it is by itself, or else the one of the workload
// that made it (ADR 18).
func memberOf(p *corev1.Pod) string {
	name := p.Annotations[keys.PodGroupAnnotation]
	if t := aloneIn(p); name == "" && t != nil {
		name = t.Name
	}
	if o := p.OwnerReferences; name == "" && len(o) == 1 && ptr.Deref(o[0].Controller, false) {
		name = "pg-" + o[0].Name + "-" + string(o[0].UID)
	}
	return p.Namespace + "/" + name
}

// pod takes in a pod. Of what it carries only what was there when it got its node counts.
func (a *Auditor) pod(p *corev1.Pod, deleted bool, now time.Time) {
	h := a.pods[p.UID]
	if h == nil {
		if deleted {
			return
		}
		h = &holder{uid: p.UID, namespace: p.Namespace, name: p.Name, ours: p.Spec.SchedulerName == keys.SchedulerName, made: p.Spec.NodeName != ""}
		a.pods[p.UID] = h
	}
	a.alone(h, p, deleted, now)
	if is := memberOf(p); is != h.member {
		h.former, h.changed, h.member = h.member, now, is
	}
	h.marks, h.set, h.asks = marksOf(p), p.Labels[keys.SubGroupLabel], p.Labels[keys.QueueLabel]
	if parts := strings.SplitN(h.charge, "/", 3); h.charge != "" {
		h.set = ""
		if len(parts) == 3 {
			h.set = parts[2]
		}
	}
	if h.leaving = p.DeletionTimestamp != nil; h.leaving {
		h.until = p.DeletionTimestamp.Time
	}
	switch bundle := p.Annotations[keys.BundleLabel]; {
	case h.node == "" && p.Spec.NodeName != "":
		if bundle == h.bundle || h.made {
			bundle = ""
		}
		h.bundle = bundle
		a.brought[bundle]++
		a.placed(h, p, now)
	case h.node == "":
		h.bundle = bundle
	}
	at := now
	if now := p.Annotations[a.o.Charge]; a.o.Enforce && h.node != "" && now != h.charge {
		a.because(a.note("S8", h.String(), at, "what says to whom it is charged changed from %q to %q", h.charge, now), h)
	}
	if deleted || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		if !h.over && h.ours && h.node != "" && p.Status.Phase == corev1.PodFailed && strings.HasPrefix(p.Status.Reason, "OutOf") {
			h.doubts = append(h.doubts, doubt{promise: "S3", what: "its kubelet turned it away: " + p.Status.Reason})
			a.wonder(h, now)
		}
		h.over = true
	}
	if slices.Contains(a.o.Honest, p.Namespace) && !h.leaving {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && !h.asked {
				h.asked = true
				h.doubts = append(h.doubts, doubt{promise: "S6", what: fmt.Sprintf("a pod within its quota was evicted: %s %s", c.Reason, c.Message), evicted: true})
				a.wonder(h, now)
			}
		}
	}
	if a.o.Enforce && a.o.Tenants[p.Namespace] != nil {
		for _, k := range forgedMarks(p) {
			a.because(a.note("S8", h.String(), now, "it carries a forged %s", k), h)
		}
	}
	if deleted {
		delete(a.pods, p.UID)
	}
}

// wonder has a pod's doubts looked at in a moment, when what explains them will have been told.
func (a *Auditor) wonder(h *holder, now time.Time) {
	if !slices.Contains(a.waiting, h) {
		a.waiting = append(a.waiting, h)
	}
	h.doubted = now
}

// forgedMarks are the keys that only Muster may write and whose values the fuzzer wrote.
func forgedMarks(p *corev1.Pod) (out []string) {
	look := func(k *Key, m map[string]string) {
		for text, v := range m { // order: sorted below
			if strings.Contains(v, "forged") && (text == k.Text || strings.HasSuffix(k.Text, "/") && strings.HasPrefix(text, k.Text)) {
				out = append(out, text)
			}
		}
	}
	for _, k := range Keys() {
		if k.Ours && k.Label&Pods != 0 {
			look(&k, p.Labels)
		}
		if k.Ours && k.Annotation&Pods != 0 {
			look(&k, p.Annotations)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// marksOf is what a pod carries that we read, in short.
func marksOf(p *corev1.Pod) string {
	var out []string
	for _, k := range Keys() {
		if v, ok := p.Labels[k.Text]; ok && k.Label&Pods != 0 {
			out = append(out, k.Text+"="+brief(v, 40))
		}
		if v, ok := p.Annotations[k.Text]; ok && k.Annotation&Pods != 0 {
			out = append(out, k.Text+":"+brief(v, 40))
		}
	}
	return strings.Join(out, " ")
}
