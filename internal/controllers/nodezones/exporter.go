package nodezones

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Limits of one question to the kubelet.
const (
	listTimeout = 10 * time.Second
	maxMessage  = 16 << 20
)

// Options are the exporter's settings.
type Options struct {
	// Node is the name of the node it runs on.
	Node string
	// Socket is the kubelet's podresources socket, a path with or without "unix://".
	Socket string
	// Sysfs is where the kernel's sysfs is mounted.
	Sysfs string
	// Poll is the time between two questions to the kubelet.
	Poll time.Duration
	// Resync is the time between two looks at the annotations themselves; 0 means never.
	Resync time.Duration
	// Watch notices looks that hang; nil notices nothing.
	Watch aside.Watch
}

// Validate says which option is missing or wrong.
func (o Options) Validate() error {
	var errs []error
	check := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	check(o.Node != "", "the node's name is required: --node-name or the environment's NODE_NAME")
	check(o.Socket != "", "--podresources-socket: is required")
	check(o.Poll > 0, "--poll-interval: must be more than 0")
	check(o.Resync >= 0, "--drift-resync-interval: must not be negative")
	return errors.Join(errs...)
}

// Exporter writes the placements of one node's pods. It is not safe for concurrent use. Create it with New.
type Exporter struct {
	o       Options
	kubelet podresources.PodResourcesListerClient
	conn    *grpc.ClientConn
	client  client.Client
	kit     *write.Kit
	zoneOf  map[int64]int64 // of each CPU
	guard   *aside.Guard
	written map[types.NamespacedName]string
}

// New returns an exporter. It fails when the options are wrong or the kernel does not tell which CPUs the zones have; the
// kubelet need not be there yet. Close it when it is no longer needed.
func New(o Options, c client.Client) (*Exporter, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	zoneOf, err := readCPUs(o.Sysfs)
	if err != nil {
		return nil, err
	}
	kit, err := write.New(c, "numa-placement-exporter", nil)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(o.Socket, "unix://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("podresources socket %s: %w", o.Socket, err)
	}
	return &Exporter{
		o: o, kubelet: podresources.NewPodResourcesListerClient(conn), conn: conn, client: c, kit: kit,
		zoneOf: zoneOf, written: map[types.NamespacedName]string{},
	}, nil
}

// Close ends the connection to the kubelet.
func (e *Exporter) Close() error { return e.conn.Close() }

// Poll asks the kubelet once, and writes what has changed since the last time. What could not be written is tried again
// by the next Poll; the error names all of it.
func (e *Exporter) Poll(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answer, err := e.kubelet.List(ask, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return fmt.Errorf("ask the kubelet for its pods' resources: %w", err)
	}
	now, err := placements(e.guard, answer, e.zoneOf)
	if err != nil {
		return err
	}
	maps.DeleteFunc(e.written, func(pod types.NamespacedName, _ string) bool { _, there := now[pod]; return !there })
	var errs []error
	for _, pod := range slices.SortedFunc(maps.Keys(now), byName) {
		if e.written[pod] != now[pod] {
			errs = append(errs, e.annotate(ctx, pod, "", now[pod]))
		}
	}
	return errors.Join(errs...)
}

// Resync reads the pods of the node, and writes again what is not there, or not as it was written: after a restart, for a
// pod that was made anew under its name, or when somebody edited it.
func (e *Exporter) Resync(ctx context.Context) error {
	var pods corev1.PodList
	if err := e.client.List(ctx, &pods, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", e.o.Node)}); err != nil {
		return fmt.Errorf("list the pods of node %s: %w", e.o.Node, err)
	}
	var errs []error
	for i := range pods.Items {
		p := &pods.Items[i]
		name := client.ObjectKeyFromObject(p)
		if want, ok := e.written[name]; ok && p.Annotations[keys.NUMAObservedAnnotation] != want {
			errs = append(errs, e.annotate(ctx, name, p.UID, want))
		}
	}
	return errors.Join(errs...)
}

// annotate writes one pod's annotation. A pod that is gone is no error.
func (e *Exporter) annotate(ctx context.Context, pod types.NamespacedName, uid types.UID, text string) error {
	meta := map[string]any{"annotations": map[string]string{keys.NUMAObservedAnnotation: text}}
	if uid != "" {
		meta["uid"] = uid
	}
	body := write.Body(map[string]any{"metadata": meta})
	target := &corev1.Pod{}
	target.Namespace, target.Name = pod.Namespace, pod.Name
	if _, err := e.kit.Merge(ctx, target, body); err != nil {
		delete(e.written, pod)
		return err
	}
	e.written[pod] = text
	return nil
}

// Run polls until ctx ends. A failure is logged, and tried again at the next interval: the kubelet restarts, too.
func (e *Exporter) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	guard, err := aside.New("numa-placement-exporter", log, nil, e.o.Watch)
	if err != nil {
		return err
	}
	e.guard = guard
	try := func(step func(context.Context) error) {
		if err := guard.Do(ctx, "a look", e.o.Node, step); err != nil && ctx.Err() == nil {
			log.Error(err, "NUMA placements are not up to date")
		}
	}
	poll := time.NewTicker(e.o.Poll)
	defer poll.Stop()
	var resync <-chan time.Time
	if e.o.Resync > 0 {
		t := time.NewTicker(e.o.Resync)
		defer t.Stop()
		resync = t.C
	}
	try(e.Poll)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			try(e.Poll)
		case <-resync:
			try(e.Resync)
		}
	}
}

func byName(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }
