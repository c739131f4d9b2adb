package binder

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/entry"
)

// maxTries is how often in a row an attempt may end in a fault that says nothing about the request before it counts as
// a failed one. With the default delays that is several minutes.
const maxTries = 10

// book is all that the binder knows: the requests by bundle, and about each its pod and node. Events of the informers
// and outcomes of actions are written into it; decide reads it. Whoever calls its methods holds its lock. Those that
// take an event return the bundles about which something changed.
type book struct {
	options   Options
	preparers []Preparer

	bundles map[BundleKey]*Bundle
	members map[types.NamespacedName]*Member
	byPod   map[types.NamespacedName][]*Member
	byNode  map[string]map[*Member]struct{}
	byClaim map[types.NamespacedName]map[*Member]struct{}
	nodes   map[string]struct{}
}

func newBook(o Options, ps []Preparer) *book {
	return &book{
		options: o, preparers: ps,
		bundles: map[BundleKey]*Bundle{},
		members: map[types.NamespacedName]*Member{},
		byPod:   map[types.NamespacedName][]*Member{},
		byNode:  map[string]map[*Member]struct{}{},
		byClaim: map[types.NamespacedName]map[*Member]struct{}{},
		nodes:   map[string]struct{}{},
	}
}

// putRequest takes a request that was added or changed. A request whose identity, meaning or bundle changed is a new
// one. Its pod has to be looked up before it is decided about (look): events about it may be long past.
func (k *book) putRequest(r *schedulingv1alpha2.BindRequest, now time.Time) (changed []BundleKey) {
	name := types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
	if m := k.members[name]; m != nil {
		same := m.Request.UID == r.UID && m.Request.Generation == r.Generation && keyOf(m.Request) == keyOf(r)
		if size, _ := sizeOf(r); same && size == m.Size {
			m.learn(r, now)
			return []BundleKey{keyOf(r)}
		}
		changed = append(changed, k.remove(m))
	}
	m := newMember(r, now, k.options, k.preparers)
	key := keyOf(r)
	b := entry.Or(k.bundles, key, func() *Bundle { return &Bundle{Key: key} })
	b.Members = append(b.Members, m)
	b.LastArrival = now
	switch {
	case b.Size == 0:
		b.Size = m.Size
	case m.Size != 0 && m.Size != b.Size && b.Conflict == "":
		b.Conflict = fmt.Sprintf("request %s says that it has %d members, others say %d", r.Name, m.Size, b.Size)
	}
	b.Complete = b.Complete || len(b.Members) == b.Size
	k.members[name] = m
	k.byPod[m.PodName] = append(k.byPod[m.PodName], m)
	node := r.Spec.SelectedNode
	entry.Put(k.byNode, node, m, struct{}{})
	_, m.NodeSeen = k.nodes[node]
	return append(changed, key)
}

// look looks up the pods of a bundle's members that nobody has looked for yet. Who was told of by an event is known.
func (k *book) look(key BundleKey, pod func(types.NamespacedName) *corev1.Pod) {
	b := k.bundles[key]
	if b == nil {
		return
	}
	for _, m := range b.Members {
		if m.sought {
			continue
		}
		m.sought = true
		if m.Pod == nil && !m.PodConfirmed {
			if found := pod(m.PodName); found != nil {
				k.setPod(m, found, false)
			}
		}
	}
}

// dropRequest takes a request that was deleted.
func (k *book) dropRequest(name types.NamespacedName, uid types.UID) (changed []BundleKey) {
	if m := k.members[name]; m != nil && m.Request.UID == uid {
		return []BundleKey{k.remove(m)}
	}
	return nil
}

// remove forgets a member, and its bundle with the last one.
func (k *book) remove(m *Member) BundleKey {
	key := keyOf(m.Request)
	delete(k.members, types.NamespacedName{Namespace: m.Request.Namespace, Name: m.Request.Name})
	if rest := without(k.byPod[m.PodName], m); len(rest) > 0 {
		k.byPod[m.PodName] = rest
	} else {
		delete(k.byPod, m.PodName)
	}
	node := m.Request.Spec.SelectedNode
	delete(k.byNode[node], m)
	if len(k.byNode[node]) == 0 {
		delete(k.byNode, node)
	}
	for _, claim := range m.claims {
		delete(k.byClaim[claim], m)
		if len(k.byClaim[claim]) == 0 {
			delete(k.byClaim, claim)
		}
	}
	if b := k.bundles[key]; b != nil {
		b.Members = without(b.Members, m)
		if len(b.Members) == 0 {
			delete(k.bundles, key)
		}
	}
	return key
}

// without returns the list without the member.
func without(list []*Member, m *Member) []*Member {
	if i := slices.Index(list, m); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// putPod takes a pod that was added or changed.
func (k *book) putPod(pod *corev1.Pod) (changed []BundleKey) {
	for _, m := range k.byPod[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}] {
		settled := m.settled()
		k.setPod(m, pod, false)
		if !settled || m.podMeant() == nil {
			changed = append(changed, keyOf(m.Request))
		}
	}
	return changed
}

// settled says that nothing is left to do for the member whatever becomes of its pod. Bound pods go on having events
// for as long as they live.
func (m *Member) settled() bool {
	return m.podMeant() != nil && m.Pod.Spec.NodeName == m.Request.Spec.SelectedNode &&
		m.Request.Status.Phase == schedulingv1alpha2.BindRequestSucceeded
}

// setPod writes what is known about a member's pod. confirmed says that the API server itself said so just now.
func (k *book) setPod(m *Member, pod *corev1.Pod, confirmed bool) {
	m.Pod, m.PodConfirmed = pod, confirmed
	if m.podMeant() == nil || m.Needs {
		return
	}
	if m.Needs = relevant(k.preparers, m.Request, pod); !m.Needs {
		return
	}
	m.claims = append(claimsOf(pod), deviceClaimsOf(pod)...)
	for _, claim := range m.claims {
		entry.Put(k.byClaim, claim, m, struct{}{})
	}
}

// dropPod takes a pod that was deleted.
func (k *book) dropPod(name types.NamespacedName, uid types.UID) (changed []BundleKey) {
	for _, m := range k.byPod[name] {
		switch {
		case m.PodUID == uid:
			// A UID that is gone never comes back, so this is final even from a cache.
			m.Pod, m.PodConfirmed = nil, true
		case m.Pod != nil && m.Pod.UID == uid:
			m.Pod, m.PodConfirmed = nil, false
		default:
			continue
		}
		changed = append(changed, keyOf(m.Request))
	}
	return changed
}

// setNode takes a node that exists, or does not any more.
func (k *book) setNode(name string, exists bool) (changed []BundleKey) {
	if exists {
		k.nodes[name] = struct{}{}
	} else {
		delete(k.nodes, name)
	}
	for m := range k.byNode[name] {
		if m.NodeSeen != exists {
			m.NodeSeen = exists
			changed = append(changed, keyOf(m.Request))
		}
	}
	return changed
}

// touchClaim takes any event about a volume claim.
func (k *book) touchClaim(name types.NamespacedName) (changed []BundleKey) {
	for m := range k.byClaim[name] {
		m.claimChanges++
		if m.Waiting {
			m.Waiting = false
			changed = append(changed, keyOf(m.Request))
		}
	}
	return changed
}

// touchVolume takes any event about a volume: a claim may be bound in the cache before its volume is there.
func (k *book) touchVolume(v *corev1.PersistentVolume) []BundleKey {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	return k.touchClaim(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
}

// touchClaims takes an event that may concern any volume claim.
func (k *book) touchClaims() (changed []BundleKey) {
	for _, members := range k.byClaim {
		for m := range members {
			m.claimChanges++
			if m.Waiting {
				m.Waiting = false
				changed = append(changed, keyOf(m.Request))
			}
		}
	}
	return changed
}

// touchRequest takes the word of a companion that what the preparation of a request waits for has changed.
func (k *book) touchRequest(name types.NamespacedName) (changed []BundleKey) {
	m := k.members[name]
	if m == nil {
		return nil
	}
	m.claimChanges++
	if !m.Waiting {
		return nil
	}
	m.Waiting = false
	return []BundleKey{keyOf(m.Request)}
}

// task is an action with all that its execution reads, so that it runs without the book.
type task struct {
	Action
	bundle   BundleKey
	request  *schedulingv1alpha2.BindRequest
	pod      *corev1.Pod // the pod that was meant, nil if none is known
	attempts int32       // for Retract: what to record
	undone   int32       // how often in a row it could not be recorded
	changes  int         // how many changes of its claims were seen
	since    time.Time   // when it was decided
}

// pods are those of a bundle, as far as their names go.
func (k *book) pods(key BundleKey) (out []*corev1.Pod) {
	if b := k.bundles[key]; b != nil {
		for _, m := range b.Members {
			if m != nil {
				out = append(out, m.about())
			}
		}
	}
	return out
}

// decide returns what is to be done for a bundle now, marked as being under way, and when to ask again (zero: never).
// Every task has to be executed and its outcome handed to settle.
func (k *book) decide(key BundleKey, now time.Time) (tasks []task, wake time.Time) {
	b := k.bundles[key]
	if b == nil {
		return nil, time.Time{}
	}
	d := Decide(b, k.options, now)
	b.Started = d.Started
	for _, a := range d.Actions {
		m := a.Member
		t := task{Action: a, bundle: key, request: m.Request, pod: m.podMeant(), attempts: m.Attempts, undone: m.RecordTries, changes: m.claimChanges, since: now}
		m.Busy = m.Busy || a.Verb != Report
		switch a.Verb {
		case Report:
			m.Reporting = true
		case Prepare:
			if m.PrepareSince.IsZero() {
				m.PrepareSince = now
			}
		case Retract:
			if a.Final {
				m.Doomed = a.Reason
				if limit := m.Request.Spec.BackoffLimit; limit != nil {
					// Less than the limit would tell every reader that another attempt follows.
					t.attempts = max(t.attempts, *limit)
				}
			}
		}
		tasks = append(tasks, t)
	}
	return tasks, d.Wake
}

// outcome is what came of a task.
type outcome struct {
	// done: it is accomplished. Without done, fault and failure, it waits for somebody else.
	done bool

	// read: the API server was asked for the pod; pod is its answer, nil if there is none.
	read bool
	pod  *corev1.Pod

	// fault: something that says nothing about the request went wrong. failure: the attempt failed.
	fault, failure error
}

// settle applies what came of a task and returns the bundle to decide about again.
func (k *book) settle(t task, out outcome, now time.Time) BundleKey {
	m := t.Member
	if t.Verb == Report {
		m.Reporting = out.done
	} else {
		m.Busy = false
	}
	if out.read {
		k.setPod(m, out.pod, true)
	}
	switch t.Verb {
	case Prepare, Bind:
		k.settleAttempt(m, t, out, now)
	default:
		if out.fault != nil {
			m.RecordTries++
			m.RetryRecord = now.Add(k.options.backoff(m.RecordTries))
			break
		}
		m.RecordTries = 0
		switch {
		case t.Verb == Retract && !out.done:
			m.Doomed = "" // it is bound after all
		case t.Verb == Retract:
			m.Attempts, m.Recorded = max(m.Attempts, t.attempts), t.attempts
			m.Prepared, m.Waiting, m.PrepareSince = false, false, time.Time{}
			if t.Final && !m.Closed {
				m.Closed, m.ClosedAt = true, now
			}
		case out.done && (t.Verb == Drop || t.Verb == Discard):
			m.Dropped = true
		}
	}
	return t.bundle
}

// settleAttempt applies what came of a step towards the bind.
func (k *book) settleAttempt(m *Member, t task, out outcome, now time.Time) {
	switch {
	case out.done && t.Verb == Bind:
		m.Bound, m.Tries = true, 0
		if b := k.bundles[t.bundle]; b != nil {
			b.Started = true
		}
	case out.done:
		m.Prepared, m.Waiting, m.Tries = true, false, 0
	case out.fault != nil && m.Tries+1 < maxTries:
		m.Tries++
		m.Retry = now.Add(k.options.backoff(m.Tries))
	case out.fault != nil || out.failure != nil:
		m.Problem = reasonOf(out)
		if s := m.stand(k.options, now).standing; s != standOpen {
			// The pod explains it: it is gone, or bound elsewhere. The request was not tried in earnest.
			return
		}
		m.Tries = 0
		m.Attempts++
		if !exhausted(m.Request, m.Attempts) {
			m.Retry = now.Add(k.options.backoff(m.Attempts))
		}
	default:
		m.Waiting, m.Looked = m.claimChanges == t.changes, now
	}
}

// reasonOf is the text that goes on record for a failed attempt.
func reasonOf(out outcome) string {
	if out.failure != nil {
		return out.failure.Error()
	}
	return out.fault.Error()
}
