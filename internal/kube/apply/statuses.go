package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// StatusOptions tune the writing of reasons.
type StatusOptions struct {
	// Pool is the shard's name in scheduling conditions.
	Pool string
	// Settle is how long a reason must have stood before it is written; 0 means one second. It keeps a gang that is placed
	// at its first or second try free of conditions.
	Settle time.Duration
	// Refresh is how often a text whose numbers changed, but not its reason, is written again; 0 means one minute.
	Refresh time.Duration
	// Detailed adds to the texts the names of the nodes that said so (--detailed-fit-errors); otherwise they are only counted.
	Detailed bool
	// Unschedulable says which pods that wait say so with the reason Unschedulable; "" means UnschedulableAuto.
	Unschedulable Unschedulable
	// Autoscaled says whether something buys nodes for pods that say Unschedulable, beside a Cluster Autoscaler, whose ConfigMap the
	// snapshots show. It must not block for long; nil: nothing does.
	Autoscaled func() bool
	// Bound is when a pod was last bound that is alone in its bundle; what nobody waits for stands back then. Nil: that is not looked at.
	Bound func() time.Time
	// Event records an event about an object. It must not block. Nil records none.
	Event func(about client.Object, kind, reason, message string)
}

// Unschedulable says of which pods the condition PodScheduled=False has the reason Unschedulable. Of the others it has the reason that
// the scheduler found. Either way a pod says SchedulingGated or BindingError where that is so.
type Unschedulable string

const (
	// UnschedulableAuto is UnschedulableIfNodesHelp where nodes are bought, which the ConfigMap of the Cluster Autoscaler or
	// StatusOptions.Autoscaled tells, and UnschedulableAlways elsewhere.
	UnschedulableAuto Unschedulable = "auto"
	// UnschedulableAlways is how upstream's scheduler and KAI's have it: a program that waits for the word finds it.
	UnschedulableAlways Unschedulable = "always"
	// UnschedulableIfNodesHelp keeps autoscalers from buying nodes that would stay empty.
	UnschedulableIfNodesHelp Unschedulable = "if-nodes-help"
)

// autoscalerStatus is the ConfigMap that a Cluster Autoscaler keeps.
const autoscalerStatus = "kube-system/cluster-autoscaler-status"

// bought says whether only pods that a node may help may say Unschedulable.
func (o *StatusOptions) bought(snap *cluster.Snapshot) bool {
	switch o.Unschedulable {
	case UnschedulableAlways:
		return false
	case UnschedulableIfNodesHelp:
		return true
	}
	return snap.Object(cluster.ConfigMaps, autoscalerStatus) != nil || o.Autoscaled != nil && o.Autoscaled()
}

// Statuses writes the reasons of a trace to the gangs and pods they are about. Publish is called by the loop; the pool
// writes. It remembers what it wrote, so that nothing is written twice; after a restart it reads the objects
// before it writes. It remembers only gangs that wait, or whose reason has not been taken back yet.
type Statuses struct {
	kit    *write.Kit
	reader client.Reader
	o      StatusOptions
	work   *Queue[object] // of gangs

	mu    sync.Mutex
	gangs map[string]*report // by gang UID
}

// said is what must change for a reason to be another one; all else is numbers.
type said struct {
	reason  *engine.Reason
	object  string
	delayed bool // others are not evicted for it yet
	bought  bool // nodes are bought for pods that say Unschedulable
}

// restored stands for a condition that an earlier process wrote.
var restored = &engine.Reason{Key: "restored"}

// report is what is known of one gang's reason.
type report struct {
	key     cluster.Key
	says    said      // now; zero once the gang needs no reason
	since   time.Time // when it began to say so
	gang    *cluster.Gang
	touched time.Time // when the gang's pods first changed after the last look at them; zero for not

	out *message // to be written; nil for nothing

	written        said // what the objects show; zero for nothing
	writtenVerdict engine.Verdict
	writtenText    string
	writtenAt      time.Time
	told           map[string]struct{} // UIDs of the pods that show it
}

// message is what is to be written about a gang. It is not changed once it is in a report.
type message struct {
	says    said // zero: take everything back
	verdict engine.Verdict
	why     *v2alpha2.UnschedulableExplanation  // for the gang's condition; nil for none
	more    []v2alpha2.UnschedulableExplanation // that stands in the way besides
	text    string
	news    bool     // the reason is another one than before: worth an event
	rest    bool     // only pods that came later; the gang itself shows the text already
	running bool     // the gang has room for some of its pods, this is about the others
	single  bool     // the gang has one pod
	pods    []podRef // pending pods that are told
}

type podRef struct{ name, uid string }

// NewStatuses returns a writer of reasons, which pool runs.
func NewStatuses(pool *Pool, kit *write.Kit, reader client.Reader, o StatusOptions) *Statuses {
	if o.Settle == 0 {
		o.Settle = time.Second
	}
	if o.Refresh == 0 {
		o.Refresh = time.Minute
	}
	if o.Event == nil {
		o.Event = func(client.Object, string, string, string) {}
	}
	r := &Statuses{kit: kit, reader: reader, o: o, gangs: map[string]*report{}}
	r.work = NewQueue(pool, reasonWork, Job[object]{Tenant: object.tenant, About: r.about, Try: r.serve})
	return r
}

// Restore looks for conditions that an earlier process of ours wrote, so that those of gangs that have been placed since
// are taken back. Call it once, when the cache has synced.
func (r *Statuses) Restore(ctx context.Context) error {
	var list v2alpha2.PodGroupList
	if err := r.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PodGroups: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list.Items {
		pg := &list.Items[i]
		for j := range pg.Status.SchedulingConditions {
			if ours(&pg.Status.SchedulingConditions[j], r.o.Pool) {
				r.gangs[string(pg.UID)] = &report{key: kai.GangKey(pg.Namespace, pg.Name), says: said{reason: restored}, written: said{reason: restored}}
			}
		}
	}
	return nil
}

// Publish takes in the trace of a run over snap. It costs the gangs of the trace, and writes nothing itself. It returns
// when it should be called again for reasons to settle, or the zero time.
func (r *Statuses) Publish(snap *cluster.Snapshot, t *engine.Trace) time.Time {
	p := publication{reports: r, snap: snap, trace: t, now: time.Now(), bought: r.o.bought(snap), texts: map[*engine.Diagnosis]string{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[string]struct{}, len(t.Gangs))
	var next time.Time
	for i := range t.Gangs {
		g := &t.Gangs[i]
		if g.Diagnosis == nil {
			continue
		}
		seen[g.UID] = struct{}{}
		// What went wrong has been told; what is said of the others stands.
		_ = r.work.guard.Catch(reasonWork.Name, kai.PodGroup(g.Gang, g.UID), func() error {
			if at := p.gang(g); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
			return nil
		})
	}
	if t.Truncated {
		return next // who is not in the trace may still wait
	}
	for uid, rep := range r.gangs { // order: each gang on its own
		if _, ok := seen[uid]; ok || rep.says == (said{}) {
			continue
		}
		if rep.written == (said{}) && rep.out == nil {
			delete(r.gangs, uid)
			continue
		}
		rep.says, rep.since, rep.gang, rep.touched, rep.out = said{}, p.now, nil, time.Time{}, &message{}
		r.work.Put(0, object{rep.key.Namespace, uid})
	}
	return next
}

// publication is one call of Publish.
type publication struct {
	reports *Statuses
	snap    *cluster.Snapshot
	trace   *engine.Trace
	now     time.Time
	bought  bool
	texts   map[*engine.Diagnosis]string
}

// gang brings the report of a gang that waits up to date, and stages what is due. It returns when to look again.
func (p *publication) gang(g *engine.GangTrace) time.Time {
	r, v := p.reports, g.Diagnosis.Verdict
	if v.Reason == policy.ReasonGaveUp {
		return time.Time{} // what it gave up over stands
	}
	rep := r.gangs[g.UID]
	if rep == nil {
		rep = &report{key: g.Gang}
		r.gangs[g.UID] = rep
	}
	if says := (said{v.Reason, v.Object, delayed(g) != nil, p.bought && v.Reason != nil}); rep.says != says {
		if rep.says == (said{}) {
			rep.out = nil // no need to take back what waits to be taken back
		}
		rep.says, rep.since = says, p.now
	}
	if gang := p.snap.Gang(g.ID); rep.gang != gang {
		rep.gang = gang
		if rep.touched.IsZero() {
			rep.touched = p.now
		}
	}
	if rep.out != nil && rep.out.says == rep.says {
		return time.Time{} // on its way
	}
	settled, refresh := rep.since.Add(r.o.Settle), rep.writtenAt.Add(r.o.Refresh)
	switch {
	case rep.says != rep.written:
		if settled.After(p.now) {
			return settled
		}
		p.stage(g, rep, p.text(g), false)
		return time.Time{}
	case !refresh.After(p.now):
		if text := p.text(g); text != rep.writtenText {
			p.stage(g, rep, text, false)
			return time.Time{}
		}
	}
	var next time.Time
	if v != rep.writtenVerdict && refresh.After(p.now) {
		next = refresh
	}
	if !rep.touched.IsZero() {
		switch at := rep.touched.Add(r.o.Settle); {
		case !at.After(p.now):
			p.stage(g, rep, rep.writtenText, true)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// stage queues what is now to be said of a gang: all of it, or the text in force to pods that do not show it yet.
func (p *publication) stage(g *engine.GangTrace, rep *report, text string, rest bool) {
	gang, v := rep.gang, g.Diagnosis.Verdict
	rep.touched = time.Time{}
	m := &message{says: rep.says, verdict: v, text: text, rest: rest, news: rep.says != rep.written, running: gang.ActivePods > 0, single: len(gang.Pods) == 1}
	if !m.running && (!gang.Backoff || attempted(v.Reason)) {
		m.why, m.more = explain(p.snap, gang, v, text, p.trace.Queues), delayed(g)
	}
	waiting := map[string]struct{}{}
	// Pods to which room is promised are not marked: an autoscaler would buy nodes for them.
	if gang.MarkUnschedulable && v.Reason != policy.ReasonReleasing {
		for _, id := range gang.Pods {
			pod := p.snap.Pod(id)
			if pod.Phase != cluster.Pending || !pod.Ours {
				continue
			}
			waiting[pod.UID] = struct{}{}
			if _, told := rep.told[pod.UID]; !told || !rest {
				m.pods = append(m.pods, podRef{pod.Name, pod.UID})
			}
		}
		slices.SortFunc(m.pods, func(a, b podRef) int { return strings.Compare(a.name, b.name) })
	}
	if rest {
		maps.DeleteFunc(rep.told, func(uid string, _ struct{}) bool { _, ok := waiting[uid]; return !ok })
		if len(m.pods) == 0 {
			return
		}
	}
	rep.out = m
	p.reports.work.Put(0, object{g.Gang.Namespace, g.UID})
}

// text is why a gang waits in words; of gangs that fail alike it is put together once, but for what is said of others.
func (p *publication) text(g *engine.GangTrace) string {
	d := g.Diagnosis
	text, ok := p.texts[d]
	if !ok {
		text = d.Message(false)
		if p.reports.o.Detailed {
			text = d.Detailed()
		}
		text = cut(text, maxText)
		p.texts[d] = text
	}
	return cut(text+g.Hindrance(), maxText)
}

// about is the PodGroup of an item; without a name once nothing is to be said of it.
func (r *Statuses) about(gang object) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rep := r.gangs[gang.uid]; rep != nil {
		return kai.PodGroup(rep.key, gang.uid)
	}
	return kai.PodGroup(cluster.Key{}, gang.uid)
}

// serve writes what is to be said of one gang; it is never at work on one gang twice at once.
func (r *Statuses) serve(ctx context.Context, gang object) error {
	uid := gang.uid
	r.mu.Lock()
	rep := r.gangs[uid]
	if rep == nil || rep.out == nil {
		r.mu.Unlock()
		return nil
	}
	m, key := rep.out, rep.key
	r.mu.Unlock()

	if err := r.write(ctx, key, uid, m); err != nil {
		return fmt.Errorf("why gang %s waits: %w", key, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !m.rest {
		rep.written, rep.writtenVerdict, rep.writtenText, rep.writtenAt, rep.told = m.says, m.verdict, m.text, time.Now(), nil
	}
	if rep.told == nil && len(m.pods) > 0 {
		rep.told = make(map[string]struct{}, len(m.pods))
	}
	for _, p := range m.pods {
		rep.told[p.uid] = struct{}{}
	}
	if rep.out == m {
		rep.out = nil
	}
	if rep.says == (said{}) && rep.out == nil {
		delete(r.gangs, uid)
	}
	return nil
}

// write brings the gang's condition, and its pods', up to date.
func (r *Statuses) write(ctx context.Context, key cluster.Key, uid string, m *message) error {
	var errs []error
	if !m.rest && key.Face == kai.Face { // others have a writer of their own
		if err := r.writeGang(ctx, key, uid, m); err != nil {
			errs = append(errs, err)
		}
	}
	for i, p := range m.pods {
		if err := r.writePod(ctx, key.Namespace, p, m, i < eventPods); err != nil {
			errs = append(errs, err)
		}
		if len(errs) > 3 {
			break // the rest would hardly fare better
		}
	}
	return errors.Join(errs...)
}

// eventPods is how many pods of a gang have an event about a reason; the others only have its words in their condition. A
// thousand events that say the same would keep the API server from what is done meanwhile.
const eventPods = 4

// errChanged is the failure of a write that another one overtook: read again, try again.
var errChanged = errors.New("it changed meanwhile")

func (r *Statuses) writeGang(ctx context.Context, key cluster.Key, uid string, m *message) error {
	var pg v2alpha2.PodGroup
	name := types.NamespacedName{Namespace: key.Namespace, Name: key.Name}
	if err := r.reader.Get(ctx, name, &pg); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(pg.UID) != uid {
		return nil
	}
	reason := "Unschedulable" // KAI's names of events
	if notReady(m.verdict.Reason) {
		reason = "NotReady"
	}
	conditions, changed := Conditions(pg.Status.SchedulingConditions, r.o.Pool, m.why, metav1.Now(), m.more...)
	if changed {
		meta := map[string]any{"uid": uid}
		if len(conditions) > 1 || len(conditions) == 1 && m.why == nil {
			meta["resourceVersion"] = pg.ResourceVersion // the list is replaced whole, and others write to it
		}
		body, err := json.Marshal(map[string]any{"metadata": meta, "status": map[string]any{"schedulingConditions": conditions}})
		if err != nil {
			return fmt.Errorf("encode the conditions of PodGroup %s: %w", name, err)
		}
		switch result, err := r.kit.MergeStatus(ctx, &pg, body); {
		case err != nil:
			return err
		case result == write.Changed:
			return fmt.Errorf("conditions of PodGroup %s: %w", name, errChanged)
		case result != write.Written:
			return nil
		}
	}
	// One pod's own event says all; the gang's condition has the words. What the gang itself lacks is the gang's news, not the pod's.
	alone := m.single && len(m.pods) == 1 && changed && !notReady(m.verdict.Reason)
	if m.news && !alone && !m.running && m.says != (said{}) && (changed || m.why == nil) {
		r.o.Event(&pg, v1.EventTypeNormal, reason, m.text)
	}
	return nil
}

func (r *Statuses) writePod(ctx context.Context, namespace string, ref podRef, m *message, event bool) error {
	var p v1.Pod
	if err := r.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.name}, &p); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(p.UID) != ref.uid || p.Spec.NodeName != "" {
		return nil
	}
	result, err := unscheduled(ctx, r.kit, &p, m.verdict, m.says.bought, m.text)
	if err != nil {
		return err
	}
	if event && result == write.Written && (m.news || m.rest) { // otherwise it is gone, or another pod of its name, or knows already
		r.o.Event(&p, v1.EventTypeWarning, "Unschedulable", m.text)
	}
	return nil
}

// unscheduled has a pod that waits say why, unless it says so already, which is told by a result that is not Written. bought says that nodes are bought for pods that say Unschedulable.
func unscheduled(ctx context.Context, kit *write.Kit, p *v1.Pod, v engine.Verdict, bought bool, text string) (write.Result, error) {
	reason := podReason(v.Reason, bought)
	if reason == v1.PodReasonUnschedulable && !v.Reason.NodesHelp() {
		text = cut(v.Reason.Key+": "+text, maxText)
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == reason && c.Message == text {
			return write.Unchanged, nil
		}
	}
	since := metav1.Now()
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && !c.LastTransitionTime.IsZero() {
			since = c.LastTransitionTime
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": map[string]any{"conditions": []map[string]any{{
		"type":   v1.PodScheduled,
		"status": v1.ConditionFalse, "reason": reason, "message": text, "lastTransitionTime": since,
	}}}})
	if err != nil {
		return write.Unchanged, fmt.Errorf("encode the condition of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return kit.StrategicStatus(ctx, p, body)
}

// notReady says of a reason that the gang is not complete by its own rules (pods are missing or gated, or it asks for more subgroups than it
// has), so that room was not even looked for. KAI tells that of the PodGroup in an event of its own, Normal NotReady; all else is Unschedulable.
func notReady(r *engine.Reason) bool {
	return r == policy.ReasonGangNotReady || r == policy.ReasonGated || r == policy.ReasonGangInvalid
}

// podReason is the reason of the condition PodScheduled=False of a pod whose gang waits for the reason given. Cluster
// autoscalers buy nodes for pods that say Unschedulable, and for no others; so where nodes are bought that is said only if one
// may help.
func podReason(r *engine.Reason, bought bool) string {
	switch {
	case r == policy.ReasonPostponed:
		return keys.ReasonBindingError // KAI's word for it
	case r == policy.ReasonGated:
		return v1.PodReasonSchedulingGated // upstream's, which the API server wrote
	case bought && !r.NodesHelp():
		return r.Key
	}
	return v1.PodReasonUnschedulable
}
