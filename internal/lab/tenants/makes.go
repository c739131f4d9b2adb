package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// Annotations by which the lab's kubelets are told how a pod behaves.
const (
	stopAfter = "muster.lab/stop-after"
	runFor    = "muster.lab/run-for"
)

// year is a grace that outlives every patience, in seconds.
const year = 365 * 24 * 3600

// gpus asks a pod for whole GPUs.
func gpus(p *corev1.PodSpec, n int) {
	q := *resource.NewQuantity(int64(n), resource.DecimalSI)
	c := &p.Containers[0]
	if c.Resources.Limits == nil {
		c.Resources.Limits = corev1.ResourceList{}
	}
	c.Resources.Limits[keys.GPUResource] = q
}

// template is what a tenant's pods look like.
func (u *turn) template() (s corev1.PodSpec, annotations map[string]string) {
	annotations = map[string]string{}
	s = corev1.PodSpec{
		SchedulerName: keys.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{Name: "main", Image: "registry.example/tenant", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(pick(u, "10m", "100m", "1", "4"))},
		}}},
	}
	switch u.IntN(20) {
	case 0, 1:
		annotations[keys.GPUFractionAnnotation] = pick(u, "0.5", "0.3", "0.9")
	case 2, 3, 4:
	default:
		gpus(&s, pick(u, 1, 1, 1, 2, 2, 4, 8))
	}
	switch u.IntN(12) {
	case 0:
		s.SchedulerName = ""
	case 1:
		s.SchedulerName = pick(u, corev1.DefaultSchedulerName, "Kai-Scheduler", "nobody")
	}
	if u.chance(10) {
		s.TerminationGracePeriodSeconds = pick(u, ptr.To[int64](1), ptr.To[int64](5), ptr.To[int64](year))
		annotations[stopAfter] = pick(u, "never", "5s")
	}
	if u.chance(15) {
		annotations[runFor] = pick(u, "1s", "5s", "20s")
	}
	if u.chance(15) {
		s.PriorityClassName = pick(u, keys.PriorityClassTrain, keys.PriorityClassBuild, keys.PriorityClassInference, "system-cluster-critical")
	}
	if u.chance(5) {
		s.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse(pick(u, "100000", "9223372036854775807m", "1n"))
	}
	if u.chance(5) {
		s.NodeSelector = map[string]string{corev1.LabelHostname: u.node()}
	}
	if u.chance(5) {
		s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "tenants.example/stay"}}
	}
	if u.chance(4) {
		s.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimName: ptr.To("claim")}}
	}
	if u.chance(4) {
		s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "volume"}}}}
	}
	if u.chance(4) {
		annotations["tenants.example/huge"] = strings.Repeat("x", 1<<(12+u.IntN(6)))
	}
	return s, annotations
}

// queued labels an object with a queue, mostly one that the tenant may use.
func (u *turn) queued(o client.Object) {
	l := o.GetLabels()
	if l == nil {
		l = map[string]string{}
	}
	switch n := u.IntN(20); {
	case n < 13:
		l[keys.QueueLabel] = pick(u, u.Queues...)
	case n < 15:
		l[keys.QueueLabel] = pick(u, u.o.Queues...)
	}
	o.SetLabels(l)
}

// submit makes a Job of a few pods.
func (u *turn) submit() {
	if len(jobs(u, u.Namespace)) >= mostJobs || len(podsOf(u, u.Namespace)) >= mostPods {
		u.remove()
		return
	}
	size := pick(u, 1, 1, 2, 3, 4, 8)
	spec, annotations := u.template()
	j := named(&batchv1.Job{}, u.Namespace, u.name("job"))
	j.Spec = batchv1.JobSpec{Parallelism: ptr.To(int32(size)), Completions: ptr.To(int32(size)), BackoffLimit: ptr.To[int32](1000)}
	j.Spec.Template.Spec, j.Spec.Template.Annotations = spec, annotations
	if u.chance(20) {
		j.Spec.Suspend = ptr.To(true)
	}
	u.queued(j)
	j.Spec.Template.Labels = map[string]string{}
	if q, ok := j.Labels[keys.QueueLabel]; ok && u.chance(70) {
		j.Spec.Template.Labels[keys.QueueLabel] = q
	}
	var top, inner []mark
	if u.chance(40) {
		top = u.marks(Workloads, 1+u.IntN(2))
	}
	if u.chance(30) {
		inner = u.marks(Pods, 1)
	}
	put(j, top)
	inside := &corev1.Pod{ObjectMeta: j.Spec.Template.ObjectMeta}
	put(inside, inner)
	j.Spec.Template.ObjectMeta = inside.ObjectMeta
	if u.chance(60) {
		j.Annotations[keys.BatchMinMemberAnnotation] = fmt.Sprint(size)
	}
	_ = u.write("create Jobs", path(j), fmt.Sprintf("of %d, scheduler %q %s | %s", size, spec.SchedulerName, told(top), told(inner)), func(ctx context.Context) error { return u.Client.Create(ctx, j) })
}

// pod makes a pod by itself.
func (u *turn) pod() {
	if len(podsOf(u, u.Namespace)) >= mostPods {
		u.remove()
		return
	}
	p := u.bare(u.name("pod"))
	what := fmt.Sprintf("scheduler %q node %q", p.Spec.SchedulerName, p.Spec.NodeName)
	if u.chance(35) {
		p.OwnerReferences = []metav1.OwnerReference{u.owner(nil)}
		what += " " + describe(p.OwnerReferences)
		if u.chance(60) {
			delete(p.Labels, keys.QueueLabel)
		}
	}
	marks := u.now.pods
	if u.chance(50) {
		marks = u.marks(Pods, 1+u.IntN(2))
	}
	put(p, marks)
	_ = u.write("create pods", path(p), what+" "+told(marks), func(ctx context.Context) error { return u.Client.Create(ctx, p) })
}

func (u *turn) bare(name string) *corev1.Pod {
	p := named(&corev1.Pod{}, u.Namespace, name)
	p.Spec, p.Annotations = u.template()
	u.queued(p)
	if u.chance(4) {
		p.Spec.NodeName = u.node()
		if p.Spec.SchedulerName != keys.SchedulerName { // what a tenant takes past every scheduler is to stay little
			p.Spec.Containers[0].Resources.Limits = nil
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("10m")
		}
	}
	return p
}

// group makes, changes or removes a PodGroup.
func (u *turn) group() {
	all := groupsOf(u, u.Namespace)
	g := one(u, all)
	if g == nil || len(all) < mostGroups && u.chance(30) {
		g = named(&v2alpha2.PodGroup{}, u.Namespace, u.name("group"))
		g.Spec = u.groupSpec()
		put(g, u.now.owners)
		_ = u.write("create PodGroups", path(g), "queue "+g.Spec.Queue, func(ctx context.Context) error { return u.Client.Create(ctx, g) })
		return
	}
	at := named(&v2alpha2.PodGroup{}, u.Namespace, g.Name)
	if u.chance(15) {
		text := fmt.Sprintf(`{"status":{"resourcesStatus":{"allocated":{"nvidia.com/gpu":%q},"requested":{"nvidia.com/gpu":"-5"}}}}`, pick(u, "0", "1000", "-7"))
		_ = u.write("patch status of PodGroups", path(at), text, func(ctx context.Context) error {
			return u.Client.Status().Patch(ctx, at, client.RawPatch(types.MergePatchType, []byte(text)))
		})
		return
	}
	spec := map[string]any{}
	full := u.groupSpec()
	switch u.IntN(6) {
	case 0:
		spec["queue"] = full.Queue
	case 1:
		spec["minMember"] = full.MinMember
	case 2:
		spec["preemptibility"] = pick(u, v2alpha2.Preemptible, v2alpha2.NonPreemptible)
	case 3:
		spec["priorityClassName"] = pick(u, keys.PriorityClassTrain, keys.PriorityClassBuild, keys.PriorityClassInference, "none")
	case 4:
		spec["subGroups"], spec["minMember"] = []v2alpha2.SubGroup{{Name: pick(u, "a", "b", "default"), MinMember: ptr.To(int32(u.IntN(3)))}}, nil
	default:
		spec["subGroups"] = nil
	}
	text, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		panic(err) // plain values
	}
	_ = u.patch("patch specs of PodGroups", at, string(text), text)
}

func (u *turn) groupSpec() v2alpha2.PodGroupSpec {
	s := v2alpha2.PodGroupSpec{Queue: u.existing("$queue"), MinMember: ptr.To(pick(u, int32(0), 1, 2, 1000000))}
	if u.chance(30) {
		s.Preemptibility = pick(u, v2alpha2.Preemptible, v2alpha2.NonPreemptible)
	}
	if u.chance(20) {
		s.PriorityClassName = pick(u, keys.PriorityClassBuild, keys.PriorityClassTrain)
	}
	return s
}

// request forges a BindRequest, or an answer to one.
func (u *turn) request() {
	p := one(u, podsOf(u, u.anywhere()))
	if p == nil {
		return
	}
	if r := one(u, requestsOf(u, u.Namespace)); r != nil && (u.chance(50) || len(requestsOf(u, u.Namespace)) >= mostRequest) {
		at := named(&v1alpha2.BindRequest{}, u.Namespace, r.Name)
		if u.chance(50) {
			text := fmt.Sprintf(`{"status":{"phase":%q,"failedAttempts":%d}}`, pick(u, "Succeeded", "Failed", "Pending"), u.IntN(100))
			_ = u.write("patch status of BindRequests", path(at), text, func(ctx context.Context) error {
				return u.Client.Status().Patch(ctx, at, client.RawPatch(types.MergePatchType, []byte(text)))
			})
			return
		}
		node := u.node()
		_ = u.patch("patch specs of BindRequests", at, node, fmt.Appendf(nil, `{"spec":{"selectedNode":%q}}`, node))
		return
	}
	r := named(&v1alpha2.BindRequest{}, u.Namespace, pick(u, p.Name, u.name("request")))
	r.Spec = v1alpha2.BindRequestSpec{PodName: p.Name, SelectedNode: u.node(), ReceivedResourceType: pick(u, "", "Regular", "Fraction")}
	if u.chance(80) {
		r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}}
	}
	if u.chance(30) {
		r.Spec.SelectedGPUGroups = []string{"forged"}
	}
	put(r, u.marks(Requests, 1))
	err := u.write("create BindRequests", path(r), fmt.Sprintf("for %s to %s", p.Name, r.Spec.SelectedNode), func(ctx context.Context) error { return u.Client.Create(ctx, r) })
	if err == nil {
		u.o.Auditor.Forged(r.UID, string(p.UID))
	}
}

// bind binds a pod by its own hand, with marks in the Binding, which the API server copies to the pod.
func (u *turn) bind() {
	var waiting []corev1.Pod
	for _, p := range podsOf(u, u.Namespace) {
		if p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
			waiting = append(waiting, p)
		}
	}
	p := one(u, waiting)
	if p == nil || u.chance(25) {
		fresh := u.bare(u.name("bound"))
		fresh.Spec.NodeName, fresh.Spec.SchedulingGates = "", nil
		if u.write("create pods", path(fresh), "to be bound", func(ctx context.Context) error { return u.Client.Create(ctx, fresh) }) != nil {
			return
		}
		p = fresh
	}
	marks := u.now.pods
	if u.chance(50) {
		marks = u.marks(Pods, 1+u.IntN(2))
	}
	b := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: u.node()}}
	put(b, marks)
	at := named(&corev1.Pod{}, u.Namespace, p.Name)
	u.o.Auditor.Tried(p.UID)
	err := u.write("create Bindings", path(at), "to "+b.Target.Name+" "+told(marks), func(ctx context.Context) error { return u.Client.SubResource("binding").Create(ctx, at, b) })
	if err == nil {
		u.o.Auditor.Bound(p.UID, path(at), p.Spec.SchedulerName == keys.SchedulerName)
	}
}

// status writes what only a kubelet should.
func (u *turn) status() {
	p := one(u, podsOf(u, u.Namespace))
	if p == nil || len(p.Spec.Containers) == 0 {
		return
	}
	name := p.Spec.Containers[0].Name
	text := pick(
		u,
		`{"status":{"phase":"Succeeded"}}`, `{"status":{"phase":"Failed","reason":"Evicted"}}`, `{"status":{"phase":"Unknown"}}`, `{"status":{"nominatedNodeName":"`+u.node()+`"}}`,
		`{"status":{"containerStatuses":[{"name":"`+name+`","image":"x","imageID":"","ready":true,"restartCount":0,"resources":{"requests":{"cpu":"1n"}}}],"conditions":[{"type":"PodResizePending","status":"True","reason":"Infeasible"}]}}`,
		`{"status":{"resourceClaimStatuses":[{"name":"c","resourceClaimName":"claim"}]}}`,
		`{"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}`,
		`{"status":{"conditions":[{"type":"RoomHeld","status":"True","reason":"WaitingForRelease"}],"nominatedNodeName":"`+u.node()+`"}}`,
		`{"status":{"conditions":[{"type":"DisruptionTarget","status":"True","reason":"PreemptionByScheduler"}]}}`,
	)
	at := named(&corev1.Pod{}, u.Namespace, p.Name)
	err := u.write("patch status of pods", path(at), text, func(ctx context.Context) error {
		return u.Client.Status().Patch(ctx, at, client.RawPatch(types.MergePatchType, []byte(text)))
	})
	if err != nil {
		return
	}
	if strings.Contains(text, "phase") {
		u.o.Auditor.Disturbed(p.UID)
	}
	for _, field := range []string{"phase", "containerStatuses", "resourceClaimStatuses"} {
		if strings.Contains(text, field) && !saidAlready(p, at, field) {
			u.o.Auditor.Said(at, field)
		}
	}
}

// saidAlready says whether a field of the status is as it was when it was read.
func saidAlready(was, is *corev1.Pod, field string) bool {
	switch field {
	case "phase":
		return was.Status.Phase == is.Status.Phase
	case "containerStatuses":
		return equality.Semantic.DeepEqual(was.Status.ContainerStatuses, is.Status.ContainerStatuses)
	}
	return equality.Semantic.DeepEqual(was.Status.ResourceClaimStatuses, is.Status.ResourceClaimStatuses)
}

// resize asks for more or less for a pod, by the way that is for this, or puts another container into it.
func (u *turn) resize() {
	p := one(u, podsOf(u, u.Namespace))
	if p == nil || len(p.Spec.Containers) == 0 {
		return
	}
	at := named(&corev1.Pod{}, u.Namespace, p.Name)
	patch := func(sub, text string) error {
		return u.write("patch "+sub+" of pods", path(at), text, func(ctx context.Context) error {
			return u.Client.SubResource(sub).Patch(ctx, at, client.RawPatch(types.StrategicMergePatchType, []byte(text)))
		})
	}
	if u.chance(20) {
		_ = patch("ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"`+u.name("debug")+`","image":"registry.example/tenant"}]}}`)
		return
	}
	asks := p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]
	cpu := resource.MustParse(pick(u, "5m", "20m", "3", "60", "100000"))
	err := patch("resize", `{"spec":{"containers":[{"name":"`+p.Spec.Containers[0].Name+`","resources":{"requests":{"cpu":"`+cpu.String()+`"}}}]}}`)
	if err == nil && cpu.Cmp(asks) > 0 {
		u.o.Auditor.Said(at, "spec.containers[].resources.requests")
	}
}

// again makes a PodGroup anew under the name that it had, with another queue and other rights, while its pods run.
func (u *turn) again() {
	g := one(u, groupsOf(u, u.Namespace))
	if g == nil {
		return
	}
	_ = u.write("delete PodGroups", u.Namespace+"/"+g.Name, "to be made again", func(ctx context.Context) error {
		return u.Client.Delete(ctx, named(&v2alpha2.PodGroup{}, u.Namespace, g.Name))
	})
	fresh := named(&v2alpha2.PodGroup{}, u.Namespace, g.Name)
	fresh.Spec = u.groupSpec()
	put(fresh, u.now.owners)
	_ = u.write("create PodGroups again", path(fresh), "queue "+fresh.Spec.Queue, func(ctx context.Context) error { return u.Client.Create(ctx, fresh) })
}

// other makes objects that pods refer to, and such as lie about.
func (u *turn) other() {
	huge := strings.Repeat("x", 1<<(10+u.IntN(11)))
	slot := fmt.Sprintf("other-%d", u.IntN(mostOthers))
	var o client.Object
	kind := ""
	switch u.IntN(8) {
	case 0:
		m := &corev1.ConfigMap{Data: map[string]string{"data": huge[:min(len(huge), 1000<<10)]}}
		kind, o = "ConfigMaps", m
	case 1:
		kind, o = "PersistentVolumeClaims", &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(pick(u, "", "none")),
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}}
		slot = pick(u, slot, "volume")
	case 2:
		kind, o = "PodDisruptionBudgets", &policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromString(pick(u, "100%", "1%"))), Selector: &metav1.LabelSelector{},
		}}
	case 3, 4:
		kind, o = "ResourceClaims", &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "d", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "none", Count: 1, AllocationMode: resourcev1.DeviceAllocationModeExactCount}}},
		}}}
		slot = pick(u, slot, "claim")
		put(o, u.marks(Claims, 1))
	case 5:
		kind, o = "Events", &corev1.Event{
			InvolvedObject: corev1.ObjectReference{APIVersion: "scheduling.run.ai/v2alpha2", Kind: "PodGroup", Namespace: u.Namespace, Name: u.existing("$group")},
			Reason:         pick(u, keys.EventRoomMade, keys.EventEvict, "x"), Message: brief(huge, 900), Type: "Normal", Source: corev1.EventSource{Component: keys.SchedulerName},
		}
		o.SetAnnotations(map[string]string{keys.DecisionAnnotation: "{", keys.EvictedPodsAnnotation: "-1"})
		slot = u.name("event")
	case 6:
		kind, o = "Leases", &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("tenant")}}
		slot = pick(u, slot, keys.SchedulerName, keys.LeaseBinder)
	default:
		kind, o = "ResourceClaimTemplates", &resourcev1.ResourceClaimTemplate{Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{}}}
	}
	named(o, u.Namespace, slot)
	if u.chance(25) {
		_ = u.write("delete "+kind, path(o), "", func(ctx context.Context) error { return u.Client.Delete(ctx, o) })
		return
	}
	_ = u.write("create "+kind, path(o), "", func(ctx context.Context) error { return u.Client.Create(ctx, o) })
}

// flood makes many pods at once whose owners are of kinds that nobody knows, or many that are large, and takes them away.
func (u *turn) flood() {
	n := min(4+u.IntN(10), mostPods+10-len(podsOf(u, u.Namespace)))
	owned, large := u.chance(50), u.chance(20)
	for i := range n {
		p := u.bare(fmt.Sprintf("%s-%d", u.name("flood"), i))
		p.Spec.SchedulerName = keys.SchedulerName
		if owned {
			p.OwnerReferences = []metav1.OwnerReference{u.owner(nil)}
		}
		if large {
			p.Annotations["tenants.example/huge"] = strings.Repeat("x", 100<<10)
		}
		_ = u.write("create pods in floods", path(p), describe(p.OwnerReferences), func(ctx context.Context) error { return u.Client.Create(ctx, p) })
	}
	_ = u.write("delete collections of pods", u.Namespace, "", func(ctx context.Context) error {
		return u.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(u.Namespace), client.MatchingFields{"spec.nodeName": ""})
	})
}

// beyond tries what the tenant has no right to.
func (u *turn) beyond() {
	other := pick(u, append(u.o.Honest, keys.Namespace, keys.ReservationNamespace)...)
	create := func(kind string, o client.Object) {
		_ = u.write("beyond: create "+kind, path(o), "", func(ctx context.Context) error { return u.Client.Create(ctx, o) })
	}
	change := func(kind string, o client.Object, text string) {
		_ = u.patch("beyond: patch "+kind, o, text, []byte(text))
	}
	switch u.IntN(8) {
	case 0:
		q := named(&queuev2.Queue{}, "", u.name("queue"))
		q.Spec.Resources = &queuev2.QueueResources{}
		create("Queues", q)
	case 1:
		change("Queues", named(&queuev2.Queue{}, "", pick(u, u.o.Queues...)), `{"spec":{"resources":{"gpu":{"limit":-1}}}}`)
	case 2:
		c := named(&schedulingv1.PriorityClass{}, "", u.name("class"))
		c.Value = 1000000
		create("PriorityClasses", c)
	case 3:
		p := u.bare(u.name("intruder"))
		p.Namespace = other
		create("pods elsewhere", p)
	case 4:
		if p := one(u, podsOf(u, other)); p != nil {
			change("pods elsewhere", named(&corev1.Pod{}, other, p.Name), `{"metadata":{"labels":{"kai.scheduler/queue":"forged"}}}`)
		}
	case 5:
		if g := one(u, groupsOf(u, other)); g != nil {
			change("PodGroups elsewhere", named(&v2alpha2.PodGroup{}, other, g.Name), `{"spec":{"minMember":1000}}`)
		}
	case 6:
		r := named(&v1alpha2.BindRequest{}, other, u.name("request"))
		r.Spec = v1alpha2.BindRequestSpec{PodName: "x", SelectedNode: u.node()}
		create("BindRequests elsewhere", r)
	default:
		change("Nodes", named(&corev1.Node{}, "", u.node()), `{"metadata":{"labels":{"kai.scheduler/node-pool":"forged"}}}`)
	}
}
