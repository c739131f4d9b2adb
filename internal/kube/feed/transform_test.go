package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

const lastApplied = v1.LastAppliedConfigAnnotation

// fullPod has something in every field that is trimmed and in many that must stay.
func fullPod() *v1.Pod {
	container := func(name string) v1.Container {
		return v1.Container{
			Name: name, Image: "i", Command: []string{"c"}, Args: []string{"a"},
			Env: []v1.EnvVar{
				{Name: "A", Value: "a"},
				{Name: "B", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "env"}, Key: "k"}}},
				{Name: "C", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "k"}}},
			},
			EnvFrom:      []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "from"}}}},
			Ports:        []v1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: "TCP"}},
			Resources:    v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}},
			VolumeMounts: []v1.VolumeMount{{Name: "v"}}, LivenessProbe: &v1.Probe{}, Lifecycle: &v1.Lifecycle{}, SecurityContext: &v1.SecurityContext{},
		}
	}
	p := pod("p", "u", 1)
	p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	p.Annotations[lastApplied] = "{}"
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j"}}
	p.Spec.InitContainers = []v1.Container{container("init")}
	p.Spec.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	p.Spec.Containers = []v1.Container{container("main")}
	p.Spec.Volumes = []v1.Volume{
		{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		{Name: "w", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "projected"}}},
			{DownwardAPI: &v1.DownwardAPIProjection{}},
		}}}},
		{Name: "x", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: core.RootCertificates}}},
		}}}},
	}
	p.Spec.PriorityClassName, p.Spec.SecurityContext = "train", &v1.PodSecurityContext{}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: "True"}}
	for _, read := range []v1.PodConditionType{v1.PodScheduled, v1.DisruptionTarget, v1.PodResizePending, v1.PodResizeInProgress, keys.RoomHeldCondition, keys.PodBoundCondition} {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.ContainersReady, Status: "True"}, v1.PodCondition{Type: read, Status: "True"})
	}
	p.Status.PodIPs = []v1.PodIP{{IP: "1.1.1.1"}}
	p.Status.ContainerStatuses = []v1.ContainerStatus{{
		Name: "main", Ready: true, Image: "i", ContainerID: "x", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("2")}},
	}}
	return p
}

// TestTrimKeepsWhatSchedulingReads: a pod means the same before and after.
func TestTrimKeepsWhatSchedulingReads(t *testing.T) {
	t.Parallel()
	var o cache.Options
	Trim(&o, Reads{SchedulerNames: []string{kai.DefaultSchedulerName}})
	roles := kai.Roles{SchedulerNames: []string{kai.DefaultSchedulerName}}
	want := core.Pod(fullPod())
	delete(want.Labels, lastApplied)
	roles.Complete(&want, fullPod())
	p := fullPod()
	for range 2 { // an informer may show an object twice
		for example, by := range o.ByObject {
			if _, ok := example.(*v1.Pod); ok {
				if _, err := by.Transform(p); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got := core.Pod(p)
	roles.Complete(&got, p)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-before +after:\n%s", diff)
	}
	c := p.Spec.Containers[0]
	if len(c.Env) != 1 || c.Env[0].Name != "B" || c.Command != nil || c.LivenessProbe != nil || c.VolumeMounts != nil {
		t.Errorf("not trimmed: %+v", c)
	}
	if sources := p.Spec.Volumes[1].Projected.Sources; len(sources) != 1 || sources[0].ConfigMap.Name != "projected" {
		t.Errorf("not trimmed: %+v", sources)
	}
	if len(p.Spec.Volumes) != 2 || len(p.Status.Conditions) != 6 {
		t.Errorf("kept are %d volumes and %d conditions: %+v", len(p.Spec.Volumes), len(p.Status.Conditions), p)
	}
	if len(p.ManagedFields) != 0 || p.Annotations[lastApplied] != "" || p.Status.ContainerStatuses[0].State.Running != nil {
		t.Errorf("not trimmed: %+v", p)
	}
	if p.OwnerReferences == nil || p.Spec.Volumes == nil || p.Spec.PriorityClassName == "" || p.Status.Conditions == nil || p.Annotations[kai.PodGroupAnnotation] == "" {
		t.Errorf("trimmed too much: %+v", p)
	}
}

// TestTrimLeavesOthersAlone: a transform is shown whatever an informer holds.
func TestTrimLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	var o cache.Options
	Trim(&o, Reads{})
	var pods, nodes client.Object
	for example := range o.ByObject { // order: one is a pod, one a node
		switch example.(type) {
		case *v1.Pod:
			pods = example
		case *v1.Node:
			nodes = example
		}
	}
	whole := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{"a": "b"}}, Data: map[string]string{"k": "v"}}
	got, err := trimConfigMap(whole)
	if err != nil || got.(*v1.ConfigMap).Data["k"] != "v" || got.(*v1.ConfigMap).Labels["a"] != "b" {
		t.Errorf("a ConfigMap watched whole was cut: %+v, %v", got, err)
	}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "u", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}}
	if _, err := trimConfigMap(meta); err != nil || meta.Labels != nil || meta.Annotations != nil || meta.UID != "u" {
		t.Errorf("metadata not trimmed: %+v, %v", meta, err)
	}
	n := node("n")
	n.Status.Images = []v1.ContainerImage{{Names: []string{"big"}}}
	if _, err := trimNode(n, newAlike()); err != nil || n.Status.Images != nil || n.Status.Allocatable == nil || n.Status.Conditions == nil {
		t.Errorf("node not trimmed: %+v, %v", n, err)
	}
	for _, f := range []func(any) (any, error){o.ByObject[pods].Transform, o.ByObject[nodes].Transform, trimConfigMap, o.DefaultTransform} {
		if got, err := f("something else"); err != nil || got != "something else" {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// TestCachesKeepWhatIsRead: however large tenants make objects of the kinds that are watched, what is kept of each is small: of those
// that are not ours, of ours, and where the podgrouper wants to copy.
func TestCachesKeepWhatIsRead(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 1000)
	fill := func(o client.Object, known string) {
		notes := map[string]string{known: strings.Repeat("y", 100_000), lastApplied: strings.Repeat("z", 20_000)}
		labels := map[string]string{keys.GPUGroupLabel: "g"}
		for i := range 130 {
			notes[fmt.Sprintf("example.org/note-%d", i)] = big
			labels[fmt.Sprintf("example.org/%s%d", big[:200], i)] = big[:63]
			labels[fmt.Sprintf("zz.example.org/%s%d", big[:200], i)] = big[:63]
		}
		o.SetAnnotations(notes)
		o.SetLabels(labels)
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: big}})
	}
	examples := map[string]struct {
		make  func() client.Object
		known string
		most  int // bytes that are kept of each
	}{
		"a foreign pod": {func() client.Object {
			p := fullPod()
			p.Spec.SchedulerName = "default-scheduler"
			for i := range 1000 {
				p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: fmt.Sprint(big[:100], i), ValueFrom: p.Spec.Containers[0].Env[1].ValueFrom})
				p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint(big[:50], i), VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}})
			}
			return p
		}, kai.PodGroupAnnotation, 24 << 10},
		"a pod of ours":  {func() client.Object { return fullPod() }, kai.PodGroupAnnotation, 40 << 10},
		"a PodGroup":     {func() client.Object { return gang("g", "train") }, kai.LastStartAnnotation, 56 << 10},
		"a BindRequest":  {func() client.Object { return bind(pod("p", "u", 1), "n", 1) }, keys.BundleLabel, 24 << 10},
		"a claim":        {func() client.Object { return &v1.PersistentVolumeClaim{} }, volume.AnnSelectedNode, 20 << 10},
		"a device claim": {func() client.Object { return &resourcev1.ResourceClaim{} }, "a", 20 << 10},
		"a namespace":    {func() client.Object { return &v1.Namespace{} }, "a", 20 << 10},
		"a budget":       {func() client.Object { return &policyv1.PodDisruptionBudget{} }, "a", 20 << 10},
		"a queue":        {func() client.Object { return &v2.Queue{} }, keys.ExtendedResourcesAnnotation, 20 << 10},
		"a node":         {func() client.Object { return node("n") }, "a", 24 << 10},
		"an owner":       {func() client.Object { return &metav1.PartialObjectMetadata{} }, keys.TopologyAnnotation, 40 << 10},
		"a ConfigMap": {func() client.Object {
			return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}}
		}, "a", 40 << 10},
	}
	for name, c := range examples {
		var o cache.Options
		Trim(&o, Reads{SchedulerNames: []string{kai.DefaultSchedulerName}, Notes: true})
		transform := o.DefaultTransform
		for example, by := range o.ByObject { // order: one is of the type
			if fmt.Sprintf("%T", example) == fmt.Sprintf("%T", c.make()) {
				transform = by.Transform
			}
		}
		object := c.make()
		fill(object, c.known)
		before := len(encoded(t, object))
		if _, err := transform(object); err != nil {
			t.Fatal(err)
		}
		after := encoded(t, object)
		if before < 250_000 || len(after) > c.most {
			t.Errorf("%s: %d bytes of %d are kept, at most %d should be", name, len(after), before, c.most)
		}
		if _, err := transform(object); err != nil || !bytes.Equal(after, encoded(t, object)) {
			t.Errorf("%s: a second look finds more to take out", name)
		}
	}
}

// TestCutTextsHoldNothing: what is retained is what is kept: strings that were cut do not hold on to what they were cut from.
func TestCutTextsHoldNothing(t *testing.T) { // not in parallel: it measures the heap
	const many = 400 // as in the finding
	var o cache.Options
	Trim(&o, Reads{SchedulerNames: []string{kai.DefaultSchedulerName}})
	kept := make([]any, many)
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	start := live()
	for i := range kept {
		p := pod("p", "u", 1)
		p.Annotations[kai.PodGroupAnnotation] = strings.Repeat("y", 250_000)
		for example, by := range o.ByObject { // order: one is a pod
			if _, ok := example.(*v1.Pod); ok {
				kept[i], _ = by.Transform(p)
			}
		}
	}
	if used := int64(live()) - int64(start); used > 40<<20 {
		t.Errorf("%d pods of 250 kB hold %d MB", many, used>>20)
	}
	runtime.KeepAlive(kept)
}

func encoded(t *testing.T, o client.Object) []byte {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
