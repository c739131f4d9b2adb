package kubebatch

import (
	"flag"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kubebatch/keys"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

// TestGolden translates everything a file holds, in a cluster with the PriorityClass high, worth 9, and no default one. A pod that names no PodGroup is told with the gang that it is the eldest of.
func TestGolden(t *testing.T) {
	t.Parallel()
	value := func(class string) (int32, bool) { return 9, class == "high" }
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		gang := func(st cluster.GangState) {
			st.Generation = 0 // a hash of the spec
			out.WriteString(dialecttest.Text(t, "gang", st))
		}
		problem := func(text string) {
			if text != "" {
				out.WriteString("problem: " + text + "\n")
			}
		}
		for _, o := range objects {
			switch o.Kind {
			case "PodGroup":
				var pg v1alpha2.PodGroup
				o.Into(t, &pg)
				gang(Gang(First(&pg), value, "default"))
			case "Queue":
				var q v1alpha2.Queue
				o.Into(t, &q)
				st, wrong := Queue(FirstQueue(&q))
				out.WriteString(dialecttest.Text(t, "queue", st))
				problem(wrong)
			case "Pod":
				var p corev1.Pod
				o.Into(t, &p)
				st := cluster.PodState{Gang: cluster.Key{Face: "kai", Namespace: p.Namespace, Name: "forged"}, SetName: "forged"}
				wrong := Member(&st, &p)
				out.WriteString(dialecttest.Text(t, "pod", st))
				problem(wrong)
				if _, shadow := Shadow(st.Gang); shadow {
					least, _ := MinMember(&p)
					gang(ShadowGang(&p, least, value, "default"))
				}
			case "PodDisruptionBudget":
				var b policyv1.PodDisruptionBudget
				o.Into(t, &b)
				owner, least, wrong := Budget(&b)
				out.WriteString("budget of \"" + string(owner) + "\": " + strconv.Itoa(int(least)) + "\n")
				problem(wrong)
			default:
				t.Fatalf("unknown kind %q", o.Kind)
			}
		}
		return out.String()
	})
}

// FuzzMember: whatever annotations of a pod say, it is in one gang of its namespace, that of a name which a PodGroup can have or that of its owner, or in none, and then it is said why; and the minimum that it says is none below 0.
func FuzzMember(f *testing.F) {
	f.Add("g", "3", true)
	f.Add("", "", false)
	f.Add("shadow_u-owner", "1", true)
	f.Add("a:b", "-1", false)
	f.Add("A", "2147483648", true)
	f.Add("\xff@", "1e3", false)
	f.Fuzz(func(t *testing.T, group, least string, owned bool) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u-pod", Annotations: map[string]string{keys.GroupName: group, keys.GroupMinMember: least}}}
		shadow := "shadow_u-pod"
		if owned {
			p.OwnerReferences = []metav1.OwnerReference{{UID: "u-other"}, {UID: "u-owner", Controller: ptr.To(true)}}
			shadow = "shadow_u-owner"
		}
		var st cluster.PodState
		problem := Member(&st, p)
		switch {
		case group == "":
			if st.Gang != GangKey("ns", shadow) {
				t.Errorf("it is in %v, want %s", st.Gang, shadow)
			}
		case st.Gang == (cluster.Key{}):
			if problem == "" {
				t.Error("it is in no gang, and nothing is said")
			}
		case st.Gang != GangKey("ns", group) || strings.ContainsAny(group, ":@_/ ") || problem != "":
			t.Errorf("it names %q and is in %v: %s", group, st.Gang, problem)
		}
		n, wrong := MinMember(p)
		if n < 0 || wrong != "" && n != 1 {
			t.Errorf("%q is %d: %s", least, n, wrong)
		}
		g := ShadowGang(p, n, func(string) (int32, bool) { return 0, false }, "default")
		if g.Invalid != "" || g.Key != GangKey("ns", shadow) || g.Sets[1].Min != n {
			t.Errorf("gang %+v", g)
		}
	})
}

// TestStatus: what is written over a status are kube-batch's phases, its counters and its condition alone; a status that says so already is left, and so is what others wrote.
func TestStatus(t *testing.T) {
	t.Parallel()
	then, now := metav1.Unix(1, 0), metav1.Unix(2, 0)
	type patch = map[string]any
	waits := volcano.Status{Phase: v1beta1.PodGroupInqueue, Reason: "NotEnoughResources", Message: "m"}
	of := func(kind string, status corev1.ConditionStatus, reason, message string, at metav1.Time) v1beta1.PodGroupCondition {
		return v1beta1.PodGroupCondition{Type: v1beta1.PodGroupConditionType(kind), Status: status, Reason: reason, Message: message, LastTransitionTime: at}
	}
	for name, c := range map[string]struct {
		is   volcano.Status
		have v1alpha1.PodGroupStatus
		want patch
	}{
		"waits":   {waits, v1alpha1.PodGroupStatus{}, patch{"phase": v1beta1.PodGroupPending, "conditions": []v1beta1.PodGroupCondition{of("Unschedulable", "True", "NotEnoughResources", "m", now)}}},
		"says so": {waits, v1alpha1.PodGroupStatus{Phase: "Pending", Conditions: []v1alpha1.PodGroupCondition{{Type: "Unschedulable", Status: "True", Reason: "NotEnoughResources", Message: "m", LastTransitionTime: then}}}, patch{}},
		"runs": {
			volcano.Status{Phase: v1beta1.PodGroupRunning, Running: 2, Placed: true},
			v1alpha1.PodGroupStatus{Phase: "Pending", Conditions: []v1alpha1.PodGroupCondition{{Type: "Unschedulable", Status: "True", Reason: "NotEnoughResources"}, {Type: "Other"}}},
			patch{"phase": v1beta1.PodGroupRunning, "running": int32(2), "conditions": []v1beta1.PodGroupCondition{of("Unschedulable", "False", volcano.Scheduled, "", now), {Type: "Other"}}},
		},
		"runs at once":          {volcano.Status{Phase: v1beta1.PodGroupRunning, Running: 1, Placed: true}, v1alpha1.PodGroupStatus{}, patch{"phase": v1beta1.PodGroupRunning, "running": int32(1)}},
		"has ended":             {volcano.Status{Phase: v1beta1.PodGroupCompleted, Succeeded: 1, Failed: 1, Placed: true}, v1alpha1.PodGroupStatus{Phase: "Running", Running: 2}, patch{"running": int32(0), "succeeded": int32(1), "failed": int32(1)}},
		"a tenant's own praise": {volcano.Status{Phase: v1beta1.PodGroupPending}, v1alpha1.PodGroupStatus{Phase: "Running", Running: 9}, patch{"phase": v1beta1.PodGroupPending, "running": int32(0)}},
	} {
		got, changed := Over(c.is, &c.have, now)
		if d := cmp.Diff(c.want, got); d != "" || changed != (len(c.want) > 0) {
			t.Errorf("%s: changed %v (-want +got):\n%s", name, changed, d)
		}
	}
}

// TestPodGroup: the object of a gang is called as it is; of one without a PodGroup by a name that an object can have.
func TestPodGroup(t *testing.T) {
	t.Parallel()
	for key, want := range map[cluster.Key]string{GangKey("ns", "g"): "g", ShadowKey("ns", "u-owner"): "u-owner"} {
		if o := PodGroup(key, "u"); o.Name != want || o.Namespace != "ns" || o.UID != types.UID("u") {
			t.Errorf("%v is %s/%s %s", key, o.Namespace, o.Name, o.UID)
		}
	}
}
