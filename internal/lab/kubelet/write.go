package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// syncPod does the next thing that is due for a pod, and asks to be called again when the one after it is.
func (p *Player) syncPod(ctx context.Context, uid types.UID) error {
	p.mu.Lock()
	q := p.pods[uid]
	if q == nil {
		p.mu.Unlock()
		return nil
	}
	n := p.nodes[q.obj.Spec.NodeName]
	now := *q // obj is never modified, so a shallow copy may be read without the lock
	lost := n != nil && n.failed
	p.mu.Unlock()
	if n == nil {
		return nil
	}
	if lost {
		// All that happens on a lost node is what the node controller does when it finds one: it writes that the
		// pods there are no longer ready.
		if now.obj.Status.Phase == corev1.PodRunning && podReady(now.obj) {
			return p.patchPod(ctx, now.obj, podStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.Now(),
			}}})
		}
		return nil
	}

	clock := time.Now()
	later := func(at time.Time) error {
		p.queue.AddAfter(task{pod: uid}, at.Sub(clock))
		return nil
	}
	switch {
	case now.obj.DeletionTimestamp != nil && now.work != nil && !now.work.over():
		now.work.term()
		if at := now.deleted.Add(now.grace()); clock.Before(at) {
			return later(at)
		}
		now.work.kill() // its end brings us back
		return nil
	case now.obj.DeletionTimestamp != nil:
		at, killed := now.dies()
		if now.work != nil {
			at, killed = clock, now.work.code == 128+9
		}
		if clock.Before(at) {
			return later(at)
		}
		return p.kill(ctx, q, now, killed)
	case now.stage == rejected:
		return p.patchPod(ctx, now.obj, rejectedStatus(now))
	case now.stage == admitted:
		if at := now.admitted.Add(now.wishes.startAfter); clock.Before(at) {
			return later(at)
		}
		return p.start(ctx, q, now)
	case now.stage == running && now.work != nil && now.work.over():
		now.wishes.fail, now.wishes.exitCode = now.work.code != 0, now.work.code
		return p.end(ctx, q, now)
	case now.stage == running:
		if now.work == nil && p.runs(now.obj) { // begun by an earlier Player
			_, err := p.run(ctx, q, now)
			return err // a process that has begun has us look again
		}
		if at := now.started.Add(now.wishes.runFor); now.wishes.runFor != forever {
			if !clock.Before(at) {
				return p.end(ctx, q, now)
			}
			if err := later(at); err != nil {
				return err
			}
		}
		if now.work != nil {
			return p.showWork(ctx, q, now)
		}
		// The pods of a lost node were marked unready; a kubelet that comes back corrects that.
		if now.obj.Status.Phase == corev1.PodRunning && !podReady(now.obj) {
			return p.patchPod(ctx, now.obj, runningStatus(now, now.started))
		}
	}
	return nil
}

// dies says when a deleted pod is dead, and whether it had to be killed.
func (q pod) dies() (time.Time, bool) {
	grace := q.grace()
	if q.stage != running {
		return q.deleted, false
	}
	if q.wishes.stopAfter >= grace {
		return q.deleted.Add(grace), q.wishes.stopAfter > grace
	}
	return q.deleted.Add(q.wishes.stopAfter), false
}

// grace is how long a deleted pod may take to end.
func (q pod) grace() time.Duration {
	if s := q.obj.DeletionGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 0
}

// run starts the pod's real processes. False is that there is nothing to start any more; an error is shown in the pod's status,
// as a kubelet does.
func (p *Player) run(ctx context.Context, q *pod, now pod) (bool, error) {
	w, err := p.launch(ctx, now)
	if err != nil {
		return false, errors.Join(err, p.patchPod(ctx, now.obj, blockedStatus(now, err)))
	}
	if w == nil {
		return false, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[now.obj.UID] != q { // it went meanwhile
		w.kill()
	}
	q.work = w
	return true, nil
}

func (p *Player) start(ctx context.Context, q *pod, now pod) error {
	if p.runs(now.obj) && now.work == nil {
		if begun, err := p.run(ctx, q, now); !begun {
			return err
		}
	}
	started := time.Now()
	if err := p.observe(ctx, now.obj); err != nil {
		return err
	}
	status := runningStatus(now, started)
	if p.runs(now.obj) {
		status.Conditions = readiness(false, started, started) // what the probes say follows
		for i := range status.ContainerStatuses {
			status.ContainerStatuses[i].Ready = false
		}
	}
	if err := p.patchPod(ctx, now.obj, status); err != nil {
		return err
	}
	if !p.runs(now.obj) {
		if err := p.tellDevice(ctx, now); err != nil {
			return err
		}
	}
	p.mu.Lock()
	if q.stage == admitted {
		q.stage, q.started = running, started
	}
	p.mu.Unlock()
	// What comes next is decided when the watch shows the pod running; a pod with an end needs no such wait.
	if now.wishes.runFor != forever {
		p.queue.AddAfter(task{pod: now.obj.UID}, now.wishes.runFor)
	}
	return nil
}

// showWork tells how the pod's processes are, when that has changed.
func (p *Player) showWork(ctx context.Context, q *pod, now pod) error {
	faces := now.work.faces()
	ready := !slices.ContainsFunc(faces, func(f face) bool { return !f.ready })
	if slices.Equal(faces, now.told) && podReady(now.obj) == ready {
		return nil
	}
	flipped := now.flipped
	if flipped.IsZero() || now.ready != ready {
		flipped = time.Now()
	}
	status := runningStatus(now, now.started)
	status.Conditions = readiness(ready, now.started, flipped)
	for i := range status.ContainerStatuses {
		for _, f := range faces {
			if f.name == status.ContainerStatuses[i].Name {
				f.into(&status.ContainerStatuses[i])
			}
		}
	}
	if err := p.patchPod(ctx, now.obj, status); err != nil {
		return err
	}
	p.mu.Lock()
	q.told, q.ready, q.flipped = faces, ready, flipped
	p.mu.Unlock()
	return nil
}

// into writes what a process looks like into its container's status.
func (f face) into(s *corev1.ContainerStatus) {
	s.Ready, s.Started, s.RestartCount = f.ready, &f.started, f.restarts
	var last corev1.ContainerState
	if !f.ended.IsZero() {
		reason := "Completed"
		if f.code != 0 {
			reason = "Error"
		}
		last.Terminated = &corev1.ContainerStateTerminated{ExitCode: f.code, Reason: reason, StartedAt: metav1.NewTime(f.begun), FinishedAt: metav1.NewTime(f.ended)}
	}
	s.LastTerminationState, s.State = last, corev1.ContainerState{}
	if f.running {
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(f.since)}
	} else {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "the process has ended and is started again after a while"}
	}
}

// readiness are the conditions of a pod with processes.
func readiness(ready bool, started, flipped time.Time) []corev1.PodCondition {
	list := conditions(corev1.ConditionTrue, "")
	for i := range list {
		list[i].LastTransitionTime = metav1.NewTime(started)
		if list[i].Type == corev1.PodReady || list[i].Type == corev1.ContainersReady {
			list[i].LastTransitionTime = metav1.NewTime(flipped)
			if !ready {
				list[i].Status, list[i].Reason = corev1.ConditionFalse, "ContainersNotReady"
			}
		}
	}
	return list
}

// blockedStatus is that of a pod whose processes cannot be started.
func blockedStatus(q pod, err error) podStatus {
	s := podStatus{Phase: corev1.PodPending, HostIP: "127.0.0.1"}
	for _, c := range q.obj.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: err.Error()}},
		})
	}
	return s
}

// observe plays the node's exporter of NUMA placements: the kubelet took what was predicted, and the exporter says so.
func (p *Player) observe(ctx context.Context, obj *corev1.Pod) error {
	predicted := obj.Annotations[keys.NUMAPredictedAnnotation]
	if predicted == "" || obj.Annotations[keys.NUMAObservedAnnotation] != "" {
		return nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.UID, "annotations": map[string]string{keys.NUMAObservedAnnotation: predicted},
	}})
	if err != nil {
		return fmt.Errorf("encode the NUMA placement of pod %s/%s: %w", obj.Namespace, obj.Name, err)
	}
	_, err = p.client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return ignoreGone(err)
}

func (p *Player) end(ctx context.Context, q *pod, now pod) error {
	p.mu.Lock()
	p.release(q)
	p.mu.Unlock()
	err := p.patchPod(ctx, now.obj, endedStatus(now))
	if err != nil {
		// It holds nothing any more, but the API server does not know yet: try again as the running pod it shows.
		p.mu.Lock()
		if n := p.nodes[now.obj.Spec.NodeName]; n != nil && q.stage == ended && p.pods[now.obj.UID] == q {
			q.stage = running
			n.take(q.requests)
			n.giveDevices(now.obj.Spec.NodeName, q)
		}
		p.mu.Unlock()
	}
	return err
}

// kill ends a deleted pod: its room, its status if it ran, and last the object.
func (p *Player) kill(ctx context.Context, q *pod, now pod, killed bool) error {
	p.mu.Lock()
	p.release(q)
	p.mu.Unlock()
	if now.stage == running && !terminal(now.obj.Status.Phase) {
		if err := p.patchPod(ctx, now.obj, killedStatus(now, killed)); err != nil {
			return err
		}
	}
	zero := int64(0)
	err := p.client.CoreV1().Pods(now.obj.Namespace).Delete(ctx, now.obj.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &now.obj.UID},
	})
	return ignoreGone(err)
}

// patchPod writes a status for the very pod that was seen, never for another of the same name.
func (p *Player) patchPod(ctx context.Context, obj *corev1.Pod, status podStatus) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": obj.UID},
		"status":   status,
	})
	if err != nil {
		return fmt.Errorf("encode the status of pod %s/%s: %w", obj.Namespace, obj.Name, err)
	}
	_, err = p.client.CoreV1().Pods(obj.Namespace).Patch(ctx, obj.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	return ignoreGone(err)
}

// ignoreGone drops the errors that say that the object is no longer the one that was meant.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// podStatus is the part of a pod's status that a kubelet writes. Conditions are merged by type.
type podStatus struct {
	Phase             corev1.PodPhase          `json:"phase,omitempty"`
	Reason            string                   `json:"reason,omitempty"`
	Message           string                   `json:"message,omitempty"`
	HostIP            string                   `json:"hostIP,omitempty"`
	PodIP             string                   `json:"podIP,omitempty"`
	PodIPs            []corev1.PodIP           `json:"podIPs,omitempty"`
	StartTime         *metav1.Time             `json:"startTime,omitempty"`
	Conditions        []corev1.PodCondition    `json:"conditions,omitempty"`
	InitContainers    []corev1.ContainerStatus `json:"initContainerStatuses,omitempty"`
	ContainerStatuses []corev1.ContainerStatus `json:"containerStatuses,omitempty"`
}

func conditions(ready corev1.ConditionStatus, reason string) []corev1.PodCondition {
	now := metav1.Now()
	var list []corev1.PodCondition
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c := corev1.PodCondition{Type: t, Status: ready, LastTransitionTime: now, Reason: reason}
		if t == corev1.PodInitialized {
			c.Status = corev1.ConditionTrue
		}
		list = append(list, c)
	}
	return list
}

func runningStatus(q pod, started time.Time) podStatus {
	at := metav1.NewTime(started)
	ip := lab.PodIP(q.obj.UID)
	s := podStatus{
		Phase: corev1.PodRunning, HostIP: "127.0.0.1", PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &at,
		Conditions: conditions(corev1.ConditionTrue, ""),
	}
	if q.wishes.bad != "" {
		s.Message = fmt.Sprintf("annotation %s: value not understood, ignored", q.wishes.bad)
	}
	yes := true
	for _, c := range q.obj.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &yes,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	for _, c := range q.obj.Spec.InitContainers {
		st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: true, Started: &yes}
		if c.RestartPolicy != nil { // a sidecar runs along
			st.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
		} else {
			st.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at}
		}
		s.InitContainers = append(s.InitContainers, st)
	}
	return s
}

func endedStatus(q pod) podStatus {
	if q.wishes.fail {
		return terminated(q, corev1.PodFailed, q.wishes.exitCode, "Error", "PodFailed")
	}
	return terminated(q, corev1.PodSucceeded, 0, "Completed", "PodCompleted")
}

// killedStatus is that of a process which a signal ended: 128 and the signal's number, as a shell counts.
func killedStatus(q pod, killed bool) podStatus {
	code := int32(128 + 15)
	if killed {
		code = 128 + 9
	}
	return terminated(q, corev1.PodFailed, code, "Error", "PodFailed")
}

func terminated(q pod, phase corev1.PodPhase, code int32, reason, condition string) podStatus {
	now := metav1.Now()
	s := podStatus{Phase: phase, Conditions: conditions(corev1.ConditionFalse, condition)}
	no := false
	for _, c := range q.obj.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Started: &no,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: code, Reason: reason, StartedAt: metav1.NewTime(q.started), FinishedAt: now,
			}},
		})
	}
	return s
}

func rejectedStatus(q pod) podStatus {
	return podStatus{Phase: corev1.PodFailed, Reason: q.short.reason(), Message: q.short.message(), StartTime: new(metav1.Now())}
}

func podReady(obj *corev1.Pod) bool {
	for _, c := range obj.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func startOf(obj *corev1.Pod) time.Time {
	if obj.Status.StartTime != nil {
		return obj.Status.StartTime.Time
	}
	return time.Now()
}

func sortByArrival(pods []*pod) {
	sort.Slice(pods, func(i, j int) bool { return pods[i].arrival < pods[j].arrival })
}

// syncNode makes a node's Ready condition say what the lab plays.
func (p *Player) syncNode(ctx context.Context, name string) error {
	p.mu.Lock()
	n := p.nodes[name]
	if n == nil || n.failed != (n.ready == corev1.ConditionTrue) {
		p.mu.Unlock()
		return nil
	}
	failed := n.failed
	p.mu.Unlock()
	c := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "played by muster-lab",
		LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
	if failed { // what the node controller writes once a kubelet has been silent for its grace
		c.Status, c.Reason, c.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{c}}})
	if err != nil {
		return fmt.Errorf("encode the status of node %s: %w", name, err)
	}
	_, err = p.client.CoreV1().Nodes().PatchStatus(ctx, name, body)
	return ignoreGone(err)
}

// beat renews the Leases of healthy nodes, each once per heartbeat, evenly spread.
func (p *Player) beat(ctx context.Context) {
	for {
		names := p.healthy()
		tick := time.NewTicker(heartbeat / time.Duration(max(1, len(names))))
		if len(names) == 0 {
			tick.Reset(time.Second)
			names = []string{""}
		}
		for _, name := range names {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			if name != "" {
				p.renew(ctx, name)
			}
		}
		tick.Stop()
	}
}

func (p *Player) healthy() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for name, n := range p.nodes {
		if !n.failed {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// renew is best effort: a Lease that is missed is renewed in the next round, long before anyone's grace is over.
func (p *Player) renew(ctx context.Context, name string) {
	p.mu.Lock()
	n := p.nodes[name]
	lost := n == nil || n.failed
	p.mu.Unlock()
	if lost {
		return
	}
	leases := p.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(time.Now())
	body := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, now.UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		seconds := int32(3 * heartbeat / time.Second)
		_, _ = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
	}
}
