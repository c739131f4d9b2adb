package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// ErrLeaseLost is returned when another process holds the Lease, or nobody does. It is fatal by design: what the role still had in
// mind may contradict the new leader's decisions, so the process exits and starts anew.
var ErrLeaseLost = errors.New("lost the leader Lease")

// LeaseTimes are the times of an election.
type LeaseTimes struct {
	// Lease is how long others wait after the last renewal before they take over: whole seconds.
	Lease time.Duration
	// Renew is for how long after a renewal the leader writes. Below Lease: the rest is for what is under way, and for clocks that
	// do not go alike.
	Renew time.Duration
	// Retry is the time between attempts, to renew or to take over. Below half of Renew.
	Retry time.Duration
}

// DefaultLeaseTimes replace a dead leader within 5 s. A candidate looks every 0.4 to 0.9 s; it may see the last renewal that late,
// then waits out the Lease, and looks again. KAI's Lease lasts 15 s.
func DefaultLeaseTimes() LeaseTimes {
	return LeaseTimes{Lease: 3 * time.Second, Renew: 2500 * time.Millisecond, Retry: 400 * time.Millisecond}
}

// Validate says what is wrong with the times.
func (t LeaseTimes) Validate() error {
	switch {
	case t.Lease < time.Second || t.Lease%time.Second != 0:
		return fmt.Errorf("a Lease of %s: it lasts whole seconds, 1 or more", t.Lease)
	case t.Renew >= t.Lease:
		return fmt.Errorf("a renew deadline of %s: it must be below the Lease's duration of %s", t.Renew, t.Lease)
	case t.Retry <= 0 || t.Retry > t.Renew/2:
		return fmt.Errorf("a retry period of %s: it must be above 0, and at most half of the renew deadline of %s", t.Retry, t.Renew)
	}
	return nil
}

// Election makes one of several processes the leader through a coordination.k8s.io Lease.
type Election struct {
	LeaseTimes
	// Client reads and writes the Lease. Give it a config of its own: its renewals must not queue behind other requests.
	Client kubernetes.Interface
	// Identity tells the candidates apart; see NewIdentity.
	Identity string
	// Told, if set, hears whether this process leads: once it stands for a Lease, when it leads, when it cannot renew the Lease for
	// so long that it does not write, when it can again, and when its work has ended.
	Told func(lease string, leads bool)
	// Alive, if set, is asked before each renewal. A leader whose work hangs does not renew; see Watchdog.
	Alive func() error
}

// NewElection returns an election with the default times.
func NewElection(client kubernetes.Interface, identity string) Election {
	return Election{Client: client, Identity: identity, LeaseTimes: DefaultLeaseTimes()}
}

// NewIdentity is HOSTNAME_UUID: KAI's form, from which its operator reads the leader's pod name. What the environment calls the
// host comes first: a container's runtime sets it, and where pods are processes of one machine it alone tells them apart.
func NewIdentity() (string, error) {
	host := os.Getenv("HOSTNAME")
	if host == "" {
		var err error
		if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("host name for the leader election: %w", err)
		}
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// Turn is one candidate's part in the election for one Lease.
type Turn struct {
	// Fence is open while this process is sure to hold the Lease.
	Fence *Fence
	// Notes are annotations that the Lease has while this process leads, and says until another one does: where it is found. They are not
	// changed once RunLeading is called.
	Notes map[string]string

	e               Election
	name, namespace string
	lease           *coordinationv1.Lease // as last seen; once this process leads, as it last wrote it
	seen            moment                // when it was first seen so
}

// Turn prepares to stand for a Lease. Everything that the role writes must pass the turn's fence.
func (e Election) Turn(name, namespace string) *Turn {
	return &Turn{Fence: newFence(e.Renew), e: e, name: name, namespace: namespace}
}

// RunLeading waits until this process holds the Lease, runs lead, and gives the Lease back.
//
// It returns lead's error when lead ends; nil when ctx ends first; ErrLeaseLost when the Lease is lost, and what Election.Alive said
// when the work hangs: both without waiting for lead, whose context has ended. In a graceful stop lead ends first and the Lease is
// released afterwards, so that the successor starts at once and never beside us.
//
// A leader that cannot renew its Lease, because nobody answers, stays what it is, but its fence is closed. When there is an answer
// again, the API server itself says whether somebody else led in between: a renewal names the version of the Lease that it
// replaces. If nobody did, the leader goes on with all that it knows.
func (t *Turn) RunLeading(ctx context.Context, lead func(context.Context) error) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("lease", t.namespace+"/"+t.name)
	if err := t.e.Validate(); err != nil {
		return fmt.Errorf("leader election for %s/%s: %w", t.namespace, t.name, err)
	}
	t.tell(false)
	if !t.stand(ctx, log) {
		return nil
	}
	log.Info("leading", "identity", t.e.Identity)
	// What follows outlives ctx for as long as lead needs to end: the Lease is renewed until then.
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	leading, endLead := context.WithCancel(working)
	defer endLead()
	defer t.tell(false)
	defer t.Fence.shut()
	t.tell(true)
	done, lost := make(chan error, 1), make(chan error, 1)
	go func() { done <- lead(leading) }()
	go func() { lost <- t.keep(working, log) }()
	select {
	case <-ctx.Done():
		endLead()
	case err := <-lost:
		return err
	case err := <-done:
		return t.release(working, ctx, log, end, lost, err)
	}
	select {
	case err := <-lost:
		return err
	case err := <-done:
		return t.release(working, ctx, log, end, lost, err)
	}
}

// release gives the Lease back after the work has ended with err, and returns how it ended.
func (t *Turn) release(working, asked context.Context, log logr.Logger, end func(), lost <-chan error, err error) error {
	t.Fence.shut()
	end()
	if <-lost == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(working), t.e.Renew)
		defer cancel()
		if err := t.ours(ctx, t.releasing); err != nil {
			log.Info("the Lease was not released, and runs out", "error", err.Error())
		}
	}
	if asked.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (t *Turn) tell(leads bool) {
	if t.e.Told != nil {
		t.e.Told(t.name, leads)
	}
}

// stand waits for the Lease; false when ctx ended first.
func (t *Turn) stand(ctx context.Context, log logr.Logger) bool {
	for failures := 0; ; {
		attempt, cancel := context.WithTimeout(ctx, t.e.Renew)
		held, err := t.take(attempt, log)
		cancel()
		switch {
		case held:
			return true
		case err == nil:
			failures = 0
		case ctx.Err() == nil:
			if failures++; failures == 1 {
				log.Info("no word about the Lease; it is asked for again and again", "error", err.Error())
			}
		}
		// Spread out, so that candidates do not always meet.
		if !sleep(ctx, t.e.Retry+rand.N(t.e.Retry*6/5)) {
			return false
		}
	}
}

// take makes the Lease ours if nobody has it.
func (t *Turn) take(ctx context.Context, log logr.Logger) (bool, error) {
	leases := t.e.Client.CoordinationV1().Leases(t.namespace)
	old, err := leases.Get(ctx, t.name, metav1.GetOptions{})
	asked, stamp := now(), metav1.NowMicro()
	mine := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: t.name, Namespace: t.namespace}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &t.e.Identity, LeaseDurationSeconds: ptr.To(int32(t.e.Lease / time.Second)),
		AcquireTime: &stamp, RenewTime: &stamp, LeaseTransitions: ptr.To(int32(0)),
	}}
	switch {
	case apierrors.IsNotFound(err):
		t.note(mine)
		mine, err = leases.Create(ctx, mine, metav1.CreateOptions{})
	case err != nil:
		return false, err
	default:
		// Not by the times in it, which are those of another machine's clock.
		if t.lease == nil || old.ResourceVersion != t.lease.ResourceVersion || !equality.Semantic.DeepEqual(old.Spec, t.lease.Spec) {
			if h := holder(old); h != "" && (t.lease == nil || h != holder(t.lease)) {
				log.Info("another process leads", "leader", h)
			}
			t.lease, t.seen = old, asked
		}
		// By the steady clock alone, which never shows too much: to wait longer is safe.
		lasts := time.Duration(ptr.Deref(old.Spec.LeaseDurationSeconds, 0)) * time.Second
		if h := holder(old); h != "" && h != t.e.Identity && asked.steady-t.seen.steady < lasts {
			return false, nil
		}
		mine.ObjectMeta = *old.ObjectMeta.DeepCopy()
		t.note(mine)
		mine.Spec.LeaseTransitions = ptr.To(ptr.Deref(old.Spec.LeaseTransitions, 0) + 1)
		mine, err = leases.Update(ctx, mine, metav1.UpdateOptions{})
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return false, nil // another one was faster
	case err != nil:
		return false, err
	}
	t.lease = mine
	t.Fence.renewed(asked)
	return true, nil
}

// note puts the process's annotations on a Lease that it takes.
func (t *Turn) note(l *coordinationv1.Lease) {
	if len(t.Notes) > 0 && l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	maps.Copy(l.Annotations, t.Notes)
}

// holder is who has a Lease; "" for nobody.
func holder(l *coordinationv1.Lease) string { return ptr.Deref(l.Spec.HolderIdentity, "") }

// keep renews the Lease until ctx ends, then nil, or until it is lost.
func (t *Turn) keep(ctx context.Context, log logr.Logger) error {
	fenced := false
	for sleep(ctx, t.e.Retry) {
		if t.e.Alive != nil {
			if err := t.e.Alive(); err != nil {
				return fmt.Errorf("the Lease %s/%s is given up: %w", t.namespace, t.name, err)
			}
		}
		attempt, cancel := context.WithTimeout(ctx, t.e.Renew)
		err := t.ours(attempt, t.renewing)
		cancel()
		if errors.Is(err, ErrLeaseLost) {
			t.Fence.shut()
			return err
		}
		if now := t.Fence.Check() != nil; now != fenced && ctx.Err() == nil {
			fenced = now
			t.tell(!fenced)
			if fenced {
				log.Info("the Lease could not be renewed in time: nothing is written until it can", "error", fmt.Sprint(err))
			} else {
				log.Info("the Lease is renewed, and nobody else has led: the work goes on")
			}
		}
	}
	return nil
}

// ours makes a change to the Lease if it is ours still. Its error wraps ErrLeaseLost when it is not; any other says that nothing is
// known.
func (t *Turn) ours(ctx context.Context, change func(*coordinationv1.Lease)) error {
	err := t.write(ctx, t.lease, change)
	if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return err
	}
	// Somebody has written it: another leader, somebody who edits it, or we ourselves, if an answer got lost.
	found, err := t.e.Client.CoordinationV1().Leases(t.namespace).Get(ctx, t.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w %s/%s: it was deleted", ErrLeaseLost, t.namespace, t.name)
	case err != nil:
		return err
	case holder(found) != t.e.Identity || ptr.Deref(found.Spec.LeaseTransitions, 0) != ptr.Deref(t.lease.Spec.LeaseTransitions, 0):
		return fmt.Errorf("%w %s/%s: %q has it", ErrLeaseLost, t.namespace, t.name, holder(found))
	}
	return t.write(ctx, found, change)
}

// write replaces a version of the Lease, and no other.
func (t *Turn) write(ctx context.Context, old *coordinationv1.Lease, change func(*coordinationv1.Lease)) error {
	l, asked, stamp := old.DeepCopy(), now(), metav1.NowMicro()
	l.Spec.RenewTime = &stamp
	change(l)
	l, err := t.e.Client.CoordinationV1().Leases(t.namespace).Update(ctx, l, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	t.lease = l
	if holder(l) == t.e.Identity {
		t.Fence.renewed(asked)
	}
	return nil
}

// renewing changes no more than the time.
func (*Turn) renewing(*coordinationv1.Lease) {}

// releasing leaves the Lease to whoever comes first.
func (*Turn) releasing(l *coordinationv1.Lease) {
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To(int32(1))
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
