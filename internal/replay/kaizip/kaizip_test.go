package kaizip

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"

	"github.com/muster-scheduler/muster/internal/cluster"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// smallCluster is a cluster with a node of two GPUs, and a gang of two pods of one GPU each.
func smallCluster() *objects {
	unlimited := v2.QueueResource{Quota: -1, Limit: -1, OverQuotaWeight: 1}
	at := metav1.NewTime(noon.Add(-time.Hour))
	o := &objects{
		Nodes: []*v1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", CreationTimestamp: at},
			Status: v1.NodeStatus{
				Allocatable: v1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("10"), "nvidia.com/gpu": resource.MustParse("2")},
				Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(noon)}},
			},
		}},
		Queues: []*v2.Queue{{ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "q"}, Spec: v2.QueueSpec{Resources: &v2.QueueResources{GPU: unlimited, CPU: unlimited, Memory: unlimited}}}},
		PodGroups: []*v2alpha2.PodGroup{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g", UID: "g", CreationTimestamp: at}, Spec: v2alpha2.PodGroupSpec{Queue: "q", MinMember: ptr.To[int32](2)},
		}},
	}
	for _, name := range []string{"a", "b"} {
		o.Pods = append(o.Pods, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: at, Annotations: map[string]string{keys.PodGroupAnnotation: "g"}},
			Spec: v1.PodSpec{SchedulerName: keys.SchedulerName, Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, Requests: v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
			}}}},
			Status: v1.PodStatus{Phase: v1.PodPending},
		})
	}
	return o
}

func packed(t *testing.T, s *Source) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(t.Context(), &b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestThereAndBack: what is written as KAI's archive is read as the cluster it was, under the profile and flags it had.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	s := &Source{Reader: smallCluster(), Profile: profile.BuiltIn(), Params: DefaultParams(), Now: noon.Add(time.Minute)}
	s.Profile.Actions = []string{"allocate", "reclaim"}
	s.Profile.Settings.QueueDepth = map[string]int{"allocate": 7}
	s.Profile.Tiers[0][1].Arguments = map[string]string{"kValue": "0.5"}
	s.Params.MaxNumberConsolidationPreemptees, s.Profile.Settings.ConsolidationVictims = 3, 3
	archive := packed(t, s)
	c, notes, err := Read(bytes.NewReader(archive), int64(len(archive)), replay.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Profile, c.Profile); diff != "" {
		t.Errorf("profile (-written +read):\n%s", diff)
	}
	if got := c.Image.Now.Time().UTC(); !got.Equal(noon.Add(time.Minute)) || len(notes) == 0 {
		t.Errorf("moment %v, notes %q", got, notes)
	}
	out, err := c.Run(t.Context(), builtin.Registry())
	if err != nil || len(out.Plans) != 1 || out.Plans[0].Binds() != 2 {
		t.Errorf("both pods have room: %+v, %v", out.Plans, err)
	}
}

// TestKAIFields: the fields of the file are those of KAI's, none of them null where KAI has a list.
func TestKAIFields(t *testing.T) {
	t.Parallel()
	archive := packed(t, &Source{Reader: smallCluster(), Profile: profile.BuiltIn(), Params: DefaultParams(), Now: noon, Without: []string{"Node"}})
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil || len(z.File) != 1 || z.File[0].Name != "snapshot.json" {
		t.Fatalf("%v, %v", z, err)
	}
	f, err := z.File[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Config          map[string]any            `json:"config"`
		SchedulerParams map[string]any            `json:"schedulerParams"`
		RawObjects      map[string]*[]interface{} `json:"rawObjects"`
	}
	d := json.NewDecoder(f)
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for name, list := range file.RawObjects {
		if list == nil {
			t.Errorf("%s is null", name)
		}
	}
	for name, want := range map[string]int{"pods": 2, "nodes": 0, "queues": 1, "podGroups": 1, "bindRequests": 0, "nodeResourceTopologies": 0, "csiStorageCapacities": 0} {
		if list := file.RawObjects[name]; list == nil || len(*list) != want {
			t.Errorf("rawObjects.%s: %v, want %d", name, list, want)
		}
	}
	if len(file.RawObjects) != 17 || file.Config["actions"] != "allocate, consolidation, reclaim, preempt, stalegangeviction" {
		t.Errorf("%d lists, config %v", len(file.RawObjects), file.Config["actions"])
	}
	partition, _ := file.SchedulerParams["partitionParams"].(map[string]any)
	if file.SchedulerParams["stuckInReleasingThreshold"] != 120e9 || partition["NodePoolLabelKey"] != keys.NodePoolLabel {
		t.Errorf("schedulerParams %v", file.SchedulerParams)
	}
}

// TestOldArchive: an archive that tells no time of its own is of the latest time that an object tells; upper case field names
// of the configuration are understood.
func TestOldArchive(t *testing.T) {
	t.Parallel()
	archive := zipped(t, "snapshot.json", `{"config":{"Actions":"allocate","Tiers":[{"Plugins":[{"Name":"predicates"}]}]},"rawObjects":`+string(must(json.Marshal(smallCluster())))+`}`)
	c, _, err := Read(bytes.NewReader(archive), int64(len(archive)), replay.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if c.Image.Now != cluster.InstantOf(noon) || len(c.Profile.Actions) != 1 || c.Profile.Tiers[0][0].Name != "predicates" {
		t.Errorf("now %v, profile %+v", c.Image.Now.Time(), c.Profile)
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

func zipped(t testing.TB, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create(name)
	if err == nil {
		_, err = f.Write([]byte(text))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRefusedArchives(t *testing.T) {
	t.Parallel()
	small := replay.Limits{Packed: 1 << 20, Unpacked: 1 << 20}
	for _, c := range []struct {
		name    string
		archive []byte
		want    string
	}{
		{"no archive", []byte("PK\x03\x04 and no more"), "zip"},
		{"other file", zipped(t, "readme", "{}"), "no snapshot.json"},
		{"no JSON", zipped(t, "snapshot.json", "hello"), "invalid character"},
		{"null pod", zipped(t, "snapshot.json", `{"rawObjects":{"pods":[null]}}`), "the Pod at place 0 is null"},
		{"unknown plugin is told by the engine, an unknown field of tiers is not", zipped(t, "snapshot.json", `{"config":{"actions":"a,,b"}}`), "empty name"},
		{"bomb", zipped(t, "snapshot.json", strings.Repeat(" ", 8<<20)), replay.ErrTooLarge.Error()},
		{"long", bytes.Repeat([]byte("PK\x03\x04"), 1<<19), replay.ErrTooLarge.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := Read(bytes.NewReader(c.archive), int64(len(c.archive)), small); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
}

func TestWriteFails(t *testing.T) {
	t.Parallel()
	s := &Source{Reader: smallCluster(), Profile: profile.BuiltIn(), Params: DefaultParams(), Now: noon}
	if err := Write(t.Context(), full{}, s); !errors.Is(err, errFull) {
		t.Errorf("a full disk: %v", err)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// FuzzRead: whatever an archive contains, it is an error or a case that can be decided on.
func FuzzRead(f *testing.F) {
	f.Add(string(must(json.Marshal(smallCluster()))))
	f.Add(`{"pods":[{"metadata":{"name":"p"}}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		archive := zipped(t, "snapshot.json", `{"rawObjects":`+raw+`}`)
		c, _, err := Read(bytes.NewReader(archive), int64(len(archive)), replay.Limits{Packed: 1 << 20, Unpacked: 1 << 20})
		if err != nil {
			return
		}
		if _, err := c.Run(t.Context(), builtin.Registry()); err != nil && strings.Contains(err.Error(), "the engine panics") {
			t.Fatal(err)
		}
	})
}
