package binder

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// Member is one BindRequest with all that is known about it: the objects as last seen, and what this process did. The
// objects are shared with the informers and never changed.
type Member struct {
	// Request is the BindRequest, never nil.
	Request *schedulingv1alpha2.BindRequest

	// PodName is the pod to bind; PodUID is the one that was meant, empty if the request does not say.
	PodName types.NamespacedName
	PodUID  types.UID

	// Size is how many requests the bundle has according to this one, 0 if it does not say so properly.
	Size int

	// Invalid says why the request cannot be executed whatever happens; empty if it can.
	Invalid string

	// Pod is the pod of that name, nil if none was seen. PodConfirmed says that Pod, or its absence, is the API
	// server's word and not only that of a cache that may lag behind.
	Pod          *corev1.Pod
	PodConfirmed bool

	// sought says that the pod was looked for in the cache.
	sought bool

	// NodeSeen says that the chosen node exists.
	NodeSeen bool

	// Seen is when this process first saw the request.
	Seen time.Time

	// Needs says that something must be prepared before the pod is bound, Prepared that this was done, and
	// PrepareSince when it began (zero: not begun). Waiting says that it goes on by itself and nothing is to be done
	// before something changes, or lookAgain has passed since Looked.
	Needs        bool
	Prepared     bool
	PrepareSince time.Time
	Waiting      bool
	Looked       time.Time

	// claims are the volume claims that its preparation may wait for; claimChanges counts what was seen of them.
	claims       []types.NamespacedName
	claimChanges int

	// Busy says that an action is under way, Reporting that the success is being reported.
	Busy      bool
	Reporting bool

	// Bound says that the API server confirmed to this process that the pod is bound where it was decided.
	Bound bool

	// Attempts counts the failed attempts, those of earlier processes included; Recorded is how many of them are
	// on the request. Tries counts faults in a row that say nothing about the request, such as an API server that
	// does not answer. Problem is what went wrong last, Retry the earliest time of the next attempt, RetryRecord that
	// of the next write of a record that could not be written, RecordTries how often in a row it could not.
	Attempts    int32
	Recorded    int32
	Tries       int32
	Problem     string
	Retry       time.Time
	RetryRecord time.Time
	RecordTries int32

	// Doomed is why the member was given up, empty if it was not. Closed says that this is on record, since
	// ClosedAt.
	Doomed   string
	Closed   bool
	ClosedAt time.Time

	// Dropped says that the request was found to be without an object and deleted.
	Dropped bool
}

// Bundle is the set of requests that are executed together.
type Bundle struct {
	// Key identifies the bundle.
	Key BundleKey

	// Size is the number of requests it should have, 0 as long as no member says so properly.
	Size int

	// Conflict says how its members contradict each other; empty if they do not.
	Conflict string

	// Complete says that all its requests were seen at one time.
	Complete bool

	// Started says that a member was bound for the bundle; from then on it is completed, never withdrawn.
	Started bool

	// LastArrival is when this process first saw the member that arrived last.
	LastArrival time.Time

	// Members are the requests, in the order of their arrival.
	Members []*Member
}

// BundleKey identifies a bundle. The namespace is part of it, so that no tenant can join another one's bundle.
type BundleKey struct {
	Namespace string
	// ID is the value of keys.BundleLabel, or a slash and the request's name for a request without that label.
	ID string
}

// String is the form for logs and reasons.
func (k BundleKey) String() string {
	if k.single() {
		return k.Namespace + k.ID
	}
	return k.Namespace + "/" + k.ID
}

// single says that the key is that of a request without a label.
func (k BundleKey) single() bool { return len(k.ID) > 0 && k.ID[0] == '/' }

// keyOf returns the key of the bundle that a request belongs to.
func keyOf(r *schedulingv1alpha2.BindRequest) BundleKey {
	if id := r.Labels[keys.BundleLabel]; id != "" {
		return BundleKey{r.Namespace, id}
	}
	return BundleKey{r.Namespace, "/" + r.Name}
}

// newMember reads a request. It takes over what an earlier process recorded on it.
func newMember(r *schedulingv1alpha2.BindRequest, now time.Time, o Options, ps []Preparer) *Member {
	said := kai.Read(r)
	m := &Member{Request: r, Seen: now, PodUID: said.PodUID, PodName: types.NamespacedName{Namespace: r.Namespace, Name: said.Pod}}
	var sizeProblem string
	m.Size, sizeProblem = sizeOf(r)
	switch {
	case sizeProblem != "":
		m.Invalid = sizeProblem
	case m.PodUID == "":
		m.Invalid = "metadata.ownerReferences names no pod " + m.PodName.Name + ": without its UID it is not known which pod is meant"
	case r.Spec.SelectedNode == "":
		m.Invalid = "spec.selectedNode is empty"
	default:
		m.Invalid = wrong(r, ps)
	}
	m.learn(r, now)
	if m.Attempts > 0 && !m.Closed {
		// When the attempt failed is not on record; waiting anew is what never hammers.
		m.Retry = now.Add(o.backoff(m.Attempts))
	}
	return m
}

// learn takes over what a newer version of the request has in its status.
func (m *Member) learn(r *schedulingv1alpha2.BindRequest, now time.Time) {
	m.Request = r
	if r.Status.Phase != schedulingv1alpha2.BindRequestFailed {
		return
	}
	m.Attempts = max(m.Attempts, r.Status.FailedAttempts)
	m.Recorded = max(m.Recorded, r.Status.FailedAttempts)
	if m.Problem == "" {
		m.Problem = r.Status.Reason
	}
	if !m.Closed && exhausted(r, r.Status.FailedAttempts) {
		m.Closed, m.ClosedAt = true, now
		if m.Doomed == "" {
			m.Doomed = r.Status.Reason
		}
		if m.Doomed == "" {
			m.Doomed = "the request is marked as failed without a reason"
		}
	}
}

// exhausted says whether a request whose last attempt failed is given up after that many failed attempts. Without a
// limit the first one is the last, as in KAI: the scheduler finds another node faster than this one recovers.
func exhausted(r *schedulingv1alpha2.BindRequest, attempts int32) bool {
	return r.Spec.BackoffLimit == nil || attempts >= *r.Spec.BackoffLimit
}

// sizeOf returns how many requests a request's bundle has, or what is wrong with its labels.
func sizeOf(r *schedulingv1alpha2.BindRequest) (size int, problem string) {
	id, labelled := r.Labels[keys.BundleLabel]
	text, sized := r.Labels[keys.BundleSizeLabel]
	switch {
	case !labelled && !sized:
		return 1, ""
	case id == "":
		return 0, fmt.Sprintf("label %s is set without a value of label %s", keys.BundleSizeLabel, keys.BundleLabel)
	case !sized:
		return 0, fmt.Sprintf("label %s is set without label %s", keys.BundleLabel, keys.BundleSizeLabel)
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Sprintf("label %s is %q, must be a number of at least 1", keys.BundleSizeLabel, text)
	}
	return int(n), ""
}

// wrong says what in a request makes no sense, or is of a kind that no preparer knows.
func wrong(r *schedulingv1alpha2.BindRequest, ps []Preparer) string {
	known := false
	for _, p := range ps {
		if c, ok := p.(Checker); ok {
			mine, problem := c.Check(r)
			if problem != "" {
				return problem
			}
			known = known || mine
		}
	}
	if known {
		return ""
	}
	switch s := &r.Spec; {
	case s.ReceivedResourceType == schedulingv1alpha2.ResourceTypeFraction:
		return "spec.receivedResourceType is Fraction: this binder does not prepare shared GPUs"
	case s.ReceivedResourceType != "" && s.ReceivedResourceType != schedulingv1alpha2.ResourceTypeRegular:
		return fmt.Sprintf("spec.receivedResourceType is %q, must be Regular or Fraction", s.ReceivedResourceType)
	}
	return ""
}

// podMeant returns the pod if it is the one that was meant.
func (m *Member) podMeant() *corev1.Pod {
	if m.Pod == nil || m.Pod.UID != m.PodUID {
		return nil
	}
	return m.Pod
}

// about is the pod, as far as its name goes.
func (m *Member) about() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.PodName.Namespace, Name: m.PodName.Name, UID: m.PodUID}}
}

// name is how reasons and logs speak of the member.
func (m *Member) name() string { return m.PodName.String() }
