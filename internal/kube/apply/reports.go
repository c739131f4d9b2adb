package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// ReportOptions tune the writing of reasons.
type ReportOptions struct {
	// SchedulerName is who speaks in events.
	SchedulerName string
	// Pool is the shard's name in scheduling conditions.
	Pool string
	// Settle is how long a reason must have stood before it is written; 0 means one second. It keeps a gang that is placed
	// at its first or second try free of conditions.
	Settle time.Duration
	// Refresh is how often a text whose numbers changed, but not its reason, is written again; 0 means one minute.
	Refresh time.Duration
	// Detailed adds what each node said to the texts (--detailed-fit-errors); otherwise the blocking rule alone is told.
	Detailed bool
	// Workers is how many writes are in flight at once; 0 means 8.
	Workers int
	// Clock is the time; nil means the real one.
	Clock clock.Clock
}

// Reports writes the reasons of a trace to the gangs and pods they are about. Publish is called by the loop; the writing
// happens in Run. It remembers what it wrote, so that nothing is written twice; after a restart it reads the objects
// before it writes.
type Reports struct {
	kit    *write.Kit
	client client.Client
	reader client.Reader
	o      ReportOptions

	mu    sync.Mutex
	gangs map[string]*report // by gang UID
	news  []Notice           // to be told, oldest first; bounded
	queue []string           // UIDs with something to write, oldest first
	wake  chan struct{}
}

// report is what is known of one gang's reason.
type report struct {
	key     cluster.Key
	reason  engine.Reason // "" once the gang needs none
	text    string
	verdict engine.Verdict
	since   time.Time // when the reason became what it is
	pods    []podRef  // pending pods that are told
	mark    bool

	written     engine.Reason
	writtenText string
	writtenAt   time.Time
	queued      bool
}

type podRef struct{ name, uid string }

// NewReports returns a writer of reasons; Run starts it.
func NewReports(kit *write.Kit, c client.Client, reader client.Reader, o ReportOptions) *Reports {
	if o.Settle == 0 {
		o.Settle = time.Second
	}
	if o.Refresh == 0 {
		o.Refresh = time.Minute
	}
	if o.Workers == 0 {
		o.Workers = 8
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reports{kit: kit, client: c, reader: reader, o: o, gangs: map[string]*report{}, wake: make(chan struct{}, 1)}
}

// restored marks a condition that an earlier process wrote: it goes when the gang is not in the next trace.
const restored engine.Reason = "restored"

// Restore looks for conditions that an earlier process of ours wrote, so that those of gangs that have been placed since
// are taken back. Call it once, when the cache has synced.
func (r *Reports) Restore(ctx context.Context) error {
	var list v2alpha2.PodGroupList
	if err := r.reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list PodGroups: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range list.Items {
		pg := &list.Items[i]
		for j := range pg.Status.SchedulingConditions {
			if c := &pg.Status.SchedulingConditions[j]; c.Type == v2alpha2.UnschedulableOnNodePool && c.NodePool == r.o.Pool {
				r.gangs[string(pg.UID)] = &report{key: kai.GangKey(pg.Namespace, pg.Name), reason: restored, written: restored}
			}
		}
	}
	return nil
}

// Publish takes in the trace of a run over snap. It costs the gangs of the trace, and writes nothing itself. It returns
// when it should be called again for reasons to settle, or the zero time.
func (r *Reports) Publish(snap *cluster.Snapshot, t *engine.Trace) time.Time {
	now := r.o.Clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	texts := map[*engine.Diagnosis]string{}
	seen := make(map[string]bool, len(t.Gangs))
	var next time.Time
	for i := range t.Gangs {
		g := &t.Gangs[i]
		if g.Diagnosis == nil {
			continue
		}
		seen[g.UID] = true
		rep := r.gangs[g.UID]
		if rep == nil {
			rep = &report{key: g.Gang, since: now}
			r.gangs[g.UID] = rep
		}
		if v := g.Diagnosis.Verdict; rep.reason != v.Reason || rep.verdict.Object != v.Object {
			rep.reason, rep.since = v.Reason, now
		}
		rep.verdict = g.Diagnosis.Verdict
		due := rep.due(r.o)
		if due.After(now) {
			if next.IsZero() || due.Before(next) {
				next = due
			}
			continue
		}
		text, ok := texts[g.Diagnosis]
		if !ok {
			text = g.Diagnosis.Message(r.o.Detailed)
			texts[g.Diagnosis] = text
		}
		if rep.reason == rep.written && text == rep.writtenText {
			continue
		}
		rep.text = text
		rep.aim(snap, g.ID)
		r.enqueue(g.UID, rep)
	}
	for uid, rep := range r.gangs { // order: each gang on its own
		if seen[uid] || rep.reason == "" {
			continue
		}
		rep.reason, rep.since, rep.pods = "", now, nil
		if rep.written == "" && !rep.queued {
			delete(r.gangs, uid)
			continue
		}
		r.enqueue(uid, rep)
	}
	return next
}

// due is when the report may be written next.
func (rep *report) due(o ReportOptions) time.Time {
	if rep.reason == rep.written {
		return rep.writtenAt.Add(o.Refresh)
	}
	return rep.since.Add(o.Settle)
}

// aim notes which pods are to be told.
func (rep *report) aim(snap *cluster.Snapshot, id cluster.GangID) {
	rep.pods = rep.pods[:0]
	g := snap.Gang(id)
	rep.mark = g.MarkUnschedulable
	for _, pid := range g.Pods {
		if p := snap.Pod(pid); p.Phase == cluster.Pending && p.Ours {
			rep.pods = append(rep.pods, podRef{p.Name, p.UID})
		}
	}
	slices.SortFunc(rep.pods, func(a, b podRef) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
}

func (r *Reports) enqueue(uid string, rep *report) {
	if !rep.queued {
		rep.queued = true
		r.queue = append(r.queue, uid)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Notice is something that is told once, by an event, of an object that is no gang.
type Notice struct {
	// About is the object; its UID may be empty if it is not known.
	About v1.ObjectReference
	// Reason is one word in camel case, Text a sentence. The event is a warning.
	Reason, Text string
}

// maxNotices bounds the notices that wait to be told; what comes on top is dropped, as events may be.
const maxNotices = 1000

// Tell has a notice written behind the work. It never blocks.
func (r *Reports) Tell(n Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.news) < maxNotices {
		r.news = append(r.news, n)
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// told returns the notices that wait, and forgets them.
func (r *Reports) told() []Notice {
	r.mu.Lock()
	defer r.mu.Unlock()
	news := r.news
	r.news = nil
	return news
}

// Run writes until ctx ends.
func (r *Reports) Run(ctx context.Context) error {
	work := make(chan string)
	done := make(chan struct{})
	for range r.o.Workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for uid := range work {
				r.write(ctx, uid)
			}
		}()
	}
	defer func() {
		close(work)
		for range r.o.Workers {
			<-done
		}
	}()
	for {
		for _, n := range r.told() {
			r.event(ctx, &n.About, v1.EventTypeWarning, n.Reason, n.Text)
		}
		uid, ok := r.pop()
		if !ok {
			select {
			case <-r.wake:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		select {
		case work <- uid:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Reports) pop() (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return "", false
	}
	uid := r.queue[0]
	r.queue = r.queue[1:]
	return uid, true
}

// write brings one gang's condition, and its pods', up to date.
func (r *Reports) write(ctx context.Context, uid string) {
	r.mu.Lock()
	rep := r.gangs[uid]
	if rep == nil {
		r.mu.Unlock()
		return
	}
	rep.queued = false
	now := *rep
	now.pods = slices.Clone(rep.pods)
	r.mu.Unlock()

	log := logr.FromContextOrDiscard(ctx)
	if err := r.writeGang(ctx, uid, &now); err != nil {
		log.Error(err, "writing why a gang waits", "gang", now.key.String())
		r.mu.Lock()
		if rep := r.gangs[uid]; rep != nil { // try again when the next trace comes, after another settling time
			rep.since = r.o.Clock.Now()
		}
		r.mu.Unlock()
		return
	}
	for _, p := range now.pods {
		if now.mark {
			if err := r.writePod(ctx, &now, p); err != nil {
				log.Error(err, "writing why a pod waits", "pod", now.key.Namespace+"/"+p.name)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if rep := r.gangs[uid]; rep != nil {
		rep.written, rep.writtenText, rep.writtenAt = now.reason, now.text, r.o.Clock.Now()
		if rep.reason == "" && now.reason == "" {
			delete(r.gangs, uid)
		}
	}
}

func (r *Reports) writeGang(ctx context.Context, uid string, rep *report) error {
	var pg v2alpha2.PodGroup
	name := types.NamespacedName{Namespace: rep.key.Namespace, Name: rep.key.Name}
	if err := r.reader.Get(ctx, name, &pg); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(pg.UID) != uid {
		return nil
	}
	conditions, changed := Conditions(pg.Status.SchedulingConditions, r.o.Pool, rep.verdict, rep.text, rep.reason == "", metav1.NewTime(r.o.Clock.Now()))
	if !changed {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": map[string]any{"schedulingConditions": conditions}})
	if err != nil {
		return fmt.Errorf("encode the conditions of %s: %w", name, err)
	}
	if _, err := r.kit.MergeStatus(ctx, &pg, body); err != nil {
		return err
	}
	if rep.reason != "" {
		r.event(ctx, &v1.ObjectReference{APIVersion: v2alpha2.GroupVersion.String(), Kind: "PodGroup", Namespace: pg.Namespace, Name: pg.Name, UID: pg.UID},
			v1.EventTypeNormal, string(rep.reason), rep.text)
	}
	return nil
}

// Conditions returns a gang's scheduling conditions with ours brought up to date: those of other pools first, then ours,
// with the next transition id; or without ours when the gang is done. It reports whether anything changed.
func Conditions(have []v2alpha2.SchedulingCondition, pool string, v engine.Verdict, text string, done bool, now metav1.Time) ([]v2alpha2.SchedulingCondition, bool) {
	last := 0
	out := make([]v2alpha2.SchedulingCondition, 0, len(have)+1)
	var mine *v2alpha2.SchedulingCondition
	count := 0
	for i := range have {
		c := &have[i]
		if n, err := strconv.Atoi(c.TransitionID); err == nil {
			last = max(last, n)
		}
		if c.Type == v2alpha2.UnschedulableOnNodePool && c.NodePool == pool {
			mine = c
			count++
			continue
		}
		out = append(out, *c)
	}
	if done {
		return out, count > 0
	}
	reason := publicReason(v.Reason)
	if count == 1 && mine.Status == v1.ConditionTrue && mine.Message == text && len(mine.Reasons) == 1 && mine.Reasons[0].Reason == reason {
		return have, false
	}
	since := now
	if count > 0 && mine.Status == v1.ConditionTrue && !mine.LastTransitionTime.IsZero() {
		since = mine.LastTransitionTime
	}
	return append(out, v2alpha2.SchedulingCondition{Type: v2alpha2.UnschedulableOnNodePool, NodePool: pool, Reason: v2alpha2.ReasonUnschedulable,
		Message: text, Reasons: v2alpha2.UnschedulableExplanations{{Reason: reason, Message: text}},
		TransitionID: strconv.Itoa(last + 1), LastTransitionTime: since, Status: v1.ConditionTrue}), true
}

// publicReason is the reason's name in KAI's API, where it has one, and ours elsewhere.
func publicReason(r engine.Reason) v2alpha2.UnschedulableReason {
	return v2alpha2.UnschedulableReason(r)
}

func (r *Reports) writePod(ctx context.Context, rep *report, ref podRef) error {
	var p v1.Pod
	if err := r.reader.Get(ctx, types.NamespacedName{Namespace: rep.key.Namespace, Name: ref.name}, &p); err != nil {
		return client.IgnoreNotFound(err)
	}
	if string(p.UID) != ref.uid || p.Spec.NodeName != "" {
		return nil
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable && c.Message == rep.text {
			return nil
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": ref.uid}, "status": map[string]any{"conditions": []map[string]any{{"type": v1.PodScheduled,
		"status": v1.ConditionFalse, "reason": v1.PodReasonUnschedulable, "message": rep.text, "lastTransitionTime": metav1.NewTime(r.o.Clock.Now())}}}})
	if err != nil {
		return fmt.Errorf("encode the condition of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	res, err := r.kit.StrategicStatus(ctx, &p, body)
	if err != nil {
		return err
	}
	if res == write.Written {
		r.event(ctx, &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}, v1.EventTypeWarning, "Unschedulable", rep.text)
	}
	return nil
}

// event writes an event about an object. One that cannot be written is logged and lost: the condition says the same.
func (r *Reports) event(ctx context.Context, about *v1.ObjectReference, kind, reason, text string) {
	now := metav1.NewTime(r.o.Clock.Now())
	if len(text) > 1000 {
		text = text[:1000]
	}
	namespace := about.Namespace
	if namespace == "" { // of objects that are in none
		namespace = metav1.NamespaceDefault
	}
	e := &v1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", about.Name, r.o.Clock.Now().UnixNano())},
		InvolvedObject: *about, Type: kind, Reason: reason, Message: text, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: v1.EventSource{Component: r.o.SchedulerName}, ReportingController: r.o.SchedulerName}
	if err := r.client.Create(ctx, e); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).V(1).Info("an event was lost", "object", about.Namespace+"/"+about.Name, "error", err.Error())
	}
}
