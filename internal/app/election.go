package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// ErrLeaseLost is returned when another process holds the Lease or it could not be renewed in time. It is fatal by design: what
// the role still had in mind may contradict the new leader's decisions, so the process exits and starts anew.
var ErrLeaseLost = errors.New("lost the leader Lease")

// Election makes one of several processes the leader through a coordination.k8s.io Lease.
type Election struct {
	// Client reads and writes the Lease. Give it a config of its own: its renewals must not queue behind other requests.
	Client kubernetes.Interface
	// Identity tells the candidates apart; see NewIdentity.
	Identity string
	// Lease is how long others wait after the last renewal before they take over.
	Lease time.Duration
	// Renew is how long the leader tries to renew before it gives up. Below Lease.
	Renew time.Duration
	// Retry is the time between attempts. Renew must exceed it by more than a fifth, the jitter of attempts.
	Retry time.Duration
	// Told, if set, hears whether this process leads: once it stands for a Lease, when it leads, and when its work has ended.
	Told func(lease string, leads bool)
}

// NewElection returns an election with Muster's times: a dead leader is replaced within about 5 s. (KAI waits 15.)
func NewElection(client kubernetes.Interface, identity string) Election {
	return Election{Client: client, Identity: identity, Lease: 4 * time.Second, Renew: 3 * time.Second, Retry: time.Second}
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

// RunLeading waits until this process holds the Lease, runs lead, and gives the Lease back.
//
// It returns lead's error when lead ends; nil when ctx ends first; ErrLeaseLost when the Lease is lost, without waiting for lead,
// whose context has ended. In a graceful stop lead ends first and the Lease is released afterwards, so that the successor starts
// at once and never beside us.
func (e Election) RunLeading(ctx context.Context, name, namespace string, lead func(context.Context) error) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("lease", namespace+"/"+name)

	tell := func(leads bool) {
		if e.Told != nil {
			e.Told(name, leads)
		}
	}
	tell(false)
	// The elector outlives ctx for as long as lead needs to end: the Lease is renewed until then.
	electing, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	leading, endLead := context.WithCancel(context.WithoutCancel(ctx))
	defer endLead()

	started, ended := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: name,
		Lock: guardedLock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: name, Namespace: namespace},
				Client:     e.Client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
			},
			working: func() bool { return isClosed(started) && !isClosed(ended) },
		},
		LeaseDuration:   e.Lease,
		RenewDeadline:   e.Renew,
		RetryPeriod:     e.Retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				close(started)
				// A stop that came first has ended the election; then there is nothing to lead.
				if leading.Err() != nil {
					close(ended)
					return
				}
				log.Info("leading", "identity", e.Identity)
				tell(true)
				err := lead(leading)
				tell(false)
				close(ended)
				done <- err
				endElection()
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				if identity != e.Identity {
					log.Info("another process leads", "leader", identity)
				}
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election for %s/%s: %w", namespace, name, err)
	}

	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		elector.Run(electing)
	}()
	select {
	case <-ctx.Done():
		endLead()
		select {
		case <-started:
			// lead ends the election when it returns; a lost Lease ends it too.
			<-stopped
		default:
			endElection()
			<-stopped
			return nil
		}
	case <-stopped:
	}
	select {
	case err := <-done:
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	default:
		return fmt.Errorf("%w %s/%s", ErrLeaseLost, namespace, name)
	}
}

// guardedLock keeps the elector from giving the Lease away while lead still works. The elector does so when a renewal fails: were
// that release to succeed, a successor would start beside us. Refused, the Lease runs out in its own time.
type guardedLock struct {
	resourcelock.Interface
	working func() bool
}

// Update refuses a record without a holder, which is a release, while lead works.
func (l guardedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && l.working() {
		return errors.New("not released: the work that the Lease protects has not ended")
	}
	return l.Interface.Update(ctx, record)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
