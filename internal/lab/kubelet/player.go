package kubelet

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/muster-scheduler/muster/internal/lab"
)

const (
	// workers is how many writes to the API server are under way at a time.
	workers = 48
	// heartbeat is how often each node's Lease is renewed. The controller manager's grace is far longer, so
	// thousands of nodes cost a few writes a second.
	heartbeat = 10 * time.Minute
)

// Player plays the kubelets of every node that carries lab.LabelPool.
type Player struct {
	client   kubernetes.Interface
	programs Programs
	works    sync.WaitGroup // of real processes
	queue    workqueue.TypedRateLimitingInterface[task]

	mu       sync.Mutex
	nodes    map[string]*node
	pods     map[types.UID]*pod
	rejected map[string]int
	arrivals int
}

// task names what a worker looks at next: a pod by its UID, or a node by its name.
type task struct {
	pod  types.UID
	node string
}

// stage is how far a pod has come on its node, as the kubelet itself knows it. The API server may lag behind.
type stage int

const (
	waiting  stage = iota // bound; its node is unknown or lost
	rejected              // no room
	admitted              // holds room
	running               // holds room, containers started
	ended                 // holds nothing
)

type pod struct {
	obj      *corev1.Pod // as last seen; never modified
	requests amounts
	wishes   wishes
	stage    stage
	arrival  int
	short    shortage  // why it was rejected
	devices  []int     // the GPUs it holds, by index
	work     *work     // its real processes; nil while there are none
	admitted time.Time // when it took its room
	started  time.Time // when its containers started
	deleted  time.Time // when its deletion was first seen

	told    []face    // how the processes were when they were last told of
	ready   bool      // whether all were ready then
	flipped time.Time // since when
}

// Stats are a Player's counts at one moment.
type Stats struct {
	// Nodes counts the played nodes, NodesReady those that are not failed.
	Nodes, NodesReady int
	// Pods counts the pods that hold room.
	Pods int
	// Rejected counts, by reason, the pods turned away at admission since the start.
	Rejected map[string]int
}

// New returns a Player that works through client, whose rate it does not limit, and runs the programs that there are for
// real. It does nothing before Run.
func New(client kubernetes.Interface, programs Programs) *Player {
	return &Player{
		client: client, programs: programs,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[task](20*time.Millisecond, 5*time.Second)),
		nodes:    map[string]*node{},
		pods:     map[types.UID]*pod{},
		rejected: map[string]int{},
	}
}

// Stats returns the counts of now. It costs one pass over the pods.
func (p *Player) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Nodes: len(p.nodes), Rejected: maps.Clone(p.rejected)}
	for _, n := range p.nodes {
		if !n.failed {
			s.NodesReady++
		}
	}
	for _, pod := range p.pods {
		if pod.stage == admitted || pod.stage == running {
			s.Pods++
		}
	}
	return s
}

// Run plays until ctx ends, and returns when every goroutine it started has ended. A Player runs once.
func (p *Player) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer p.works.Wait() // begun by workers, which end before
	defer wg.Wait()
	defer p.queue.ShutDown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	core := p.client.CoreV1().RESTClient()
	nodes := cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(core, "nodes", "", fields.Everything()), &corev1.Node{}, 0, cache.Indexers{})
	pods := cache.NewSharedIndexInformer(
		cache.NewListWatchFromClient(core, "pods", "", fields.OneTermNotEqualSelector("spec.nodeName", "")), &corev1.Pod{}, 0, cache.Indexers{})
	if err := nodes.SetTransform(trimNode); err != nil {
		return fmt.Errorf("kubelet player: %w", err)
	}
	if err := pods.SetTransform(trimPod); err != nil {
		return fmt.Errorf("kubelet player: %w", err)
	}
	nodeHandler, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.seeNode(o.(*corev1.Node)) },
		UpdateFunc: func(_, o any) { p.seeNode(o.(*corev1.Node)) },
		DeleteFunc: func(o any) { p.loseNode(o) },
	})
	if err != nil {
		return fmt.Errorf("kubelet player: %w", err)
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.seePod(o.(*corev1.Pod)) },
		UpdateFunc: func(_, o any) { p.seePod(o.(*corev1.Pod)) },
		DeleteFunc: func(o any) { p.losePod(o) },
	}); err != nil {
		return fmt.Errorf("kubelet player: %w", err)
	}
	wg.Go(func() { nodes.RunWithContext(ctx) })
	// Nodes first: a pod that runs already must find its node, or it would be admitted behind younger ones.
	if cache.WaitForCacheSync(ctx.Done(), nodeHandler.HasSynced) {
		wg.Go(func() { pods.RunWithContext(ctx) })
		wg.Go(func() { p.beat(ctx) })
		for range workers {
			wg.Go(func() { p.work(ctx) })
		}
	}
	<-ctx.Done()
	return nil
}

func (p *Player) work(ctx context.Context) {
	for {
		t, quit := p.queue.Get()
		if quit {
			return
		}
		var err error
		if t.node != "" {
			err = p.syncNode(ctx, t.node)
		} else {
			err = p.syncPod(ctx, t.pod)
		}
		if err != nil && ctx.Err() == nil {
			p.queue.AddRateLimited(t)
		} else {
			p.queue.Forget(t)
		}
		p.queue.Done(t)
	}
}

func (p *Player) seeNode(obj *corev1.Node) {
	if _, played := obj.Labels[lab.LabelPool]; !played {
		p.loseNode(obj)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[obj.Name]
	known := n != nil
	if !known {
		n = &node{used: amounts{}, devices: map[int]bool{}}
		p.nodes[obj.Name] = n
	}
	wasFailed := n.failed
	n.capacity, n.allocatable = amountsOf(obj.Status.Capacity), amountsOf(obj.Status.Allocatable)
	n.failed = obj.Annotations[lab.AnnotationFailed] == "true"
	n.ready = readyOf(obj)
	if n.failed == (n.ready == corev1.ConditionTrue) {
		p.queue.Add(task{node: obj.Name})
	}
	if !known || wasFailed != n.failed {
		p.revisit(obj.Name)
	}
}

// revisit looks again at every pod bound to a node that has appeared, failed or come back, in order of arrival.
// The caller holds mu.
func (p *Player) revisit(name string) {
	var mine []*pod
	for _, pod := range p.pods {
		if pod.obj.Spec.NodeName == name {
			mine = append(mine, pod)
		}
	}
	sortByArrival(mine)
	for _, pod := range mine {
		p.advance(pod)
	}
}

func (p *Player) loseNode(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	obj, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes[obj.Name] == nil {
		return
	}
	delete(p.nodes, obj.Name)
	for _, pod := range p.pods {
		if pod.obj.Spec.NodeName == obj.Name && (pod.stage == admitted || pod.stage == running) {
			pod.stage, pod.devices = waiting, nil
		}
	}
}

func (p *Player) seePod(obj *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.pods[obj.UID]
	if q == nil {
		p.arrivals++
		q = &pod{requests: requestsOf(obj), arrival: p.arrivals}
		p.pods[obj.UID] = q
		if terminal(obj.Status.Phase) && obj.DeletionTimestamp != nil {
			p.queue.Add(task{pod: obj.UID}) // an earlier Player ended between its last two writes
		}
	} else if q.obj.Spec.NodeName == "" {
		q.requests = requestsOf(obj) // which devices it gets by claim is decided before it is bound
	}
	q.obj = obj
	q.wishes = wishesOf(obj)
	if obj.DeletionTimestamp != nil && q.deleted.IsZero() {
		q.deleted = time.Now()
	}
	p.advance(q)
}

// advance admits or rejects a pod that waits, frees one that has ended, and has a worker look at the rest.
// The caller holds mu.
func (p *Player) advance(q *pod) {
	n := p.nodes[q.obj.Spec.NodeName]
	if terminal(q.obj.Status.Phase) {
		p.release(q)
		return
	}
	if n == nil {
		return
	}
	if q.stage == waiting && !n.failed {
		short, lacking := n.lacks(q.requests)
		switch {
		case q.obj.Status.Phase == corev1.PodRunning: // by an earlier Player: whatever it holds, it holds
			q.stage, q.admitted, q.started = running, time.Now(), startOf(q.obj)
			n.take(q.requests)
			n.giveDevices(q.obj.Spec.NodeName, q)
		case lacking:
			q.stage, q.short = rejected, short
			p.rejected[short.reason()]++
		default:
			q.stage, q.admitted = admitted, time.Now()
			n.take(q.requests)
			n.giveDevices(q.obj.Spec.NodeName, q)
		}
	}
	p.queue.Add(task{pod: q.obj.UID})
}

// release gives back what a pod holds, once. The caller holds mu.
func (p *Player) release(q *pod) {
	if n := p.nodes[q.obj.Spec.NodeName]; n != nil && (q.stage == admitted || q.stage == running) {
		n.giveBack(q.requests)
		n.takeDevices(q)
	}
	q.stage = ended
}

func (p *Player) losePod(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	obj, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.pods[obj.UID]; q != nil {
		if q.work != nil {
			q.work.kill()
		}
		p.release(q)
		delete(p.pods, obj.UID)
	}
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
