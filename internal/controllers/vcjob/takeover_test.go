package vcjob

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// left reads a list of the state that Volcano left behind, which lies beside the checkout; a test without it is skipped.
func left[T any](t *testing.T, name string) []T {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		content, err := os.ReadFile(filepath.Join(at, "shared/compat/volcano/takeover", name))
		if err == nil {
			var list struct{ Items []T }
			if err := json.Unmarshal(content, &list); err != nil {
				t.Fatal(err)
			}
			return list.Items
		}
		at = filepath.Dir(at)
	}
	t.Skipf("compatibility data shared/compat/volcano/takeover/%s is not beside this checkout: nothing to compare with", name)
	return nil
}

// taken is a book of what Volcano left behind.
func taken(t *testing.T) *book {
	t.Helper()
	b := newBook()
	for _, q := range left[scheduling.Queue](t, "queues.scheduling.volcano.sh.json") {
		b.queueSeen(&q, false)
	}
	for _, j := range left[batch.Job](t, "jobs.batch.volcano.sh.json") {
		b.jobSeen(&j, false)
	}
	for _, g := range left[scheduling.PodGroup](t, "podgroups.scheduling.volcano.sh.json") {
		b.groupSeen(&g, false)
	}
	for _, p := range left[corev1.Pod](t, "pods.json") {
		b.podSeen(&p, false)
	}
	return b
}

// TestTakeover: of a state that Volcano left behind in the midst of its work, nothing is ended, made or counted again; the PodGroups are as
// they would be made.
func TestTakeover(t *testing.T) {
	t.Parallel()
	b := taken(t)
	now := time.Date(2026, 11, 22, 12, 15, 0, 0, time.UTC)
	if len(b.jobs) != 4 {
		t.Fatalf("%d Jobs", len(b.jobs))
	}
	phases := map[string]batch.JobPhase{"aborted": batch.Aborted, "toobig": batch.Pending, "train": batch.Pending, "wait": batch.Running}
	for k, e := range b.jobs { // order: each for itself
		p, _ := b.decide(k, now, rules{refusals: 15})
		if len(p.kill)+len(p.make)+len(p.claims)+len(p.take) > 0 || p.group != nil || p.patch != nil {
			t.Errorf("%s: %d are ended, %d made, group %+v", k.Name, len(p.kill), len(p.make), p.group)
		}
		is := e.job.Status
		if p.status != nil {
			is = *p.status
		}
		if is.State.Phase != phases[k.Name] || is.RetryCount != e.job.Status.RetryCount || is.Version != e.job.Status.Version || is.Running != e.job.Status.Running {
			t.Errorf("%s: %+v becomes %+v", k.Name, e.job.Status, is)
		}
	}
}

// TestPodsAreVolcanos makes the pods, and what their plugins need, of a Job that Volcano made too: they are the same, field by field, but
// for what API servers add.
func TestPodsAreVolcanos(t *testing.T) {
	t.Parallel()
	b := taken(t)
	for k, e := range b.jobs { // order: each for itself
		recorded := e.pods
		if len(recorded) == 0 {
			continue
		}
		g := e.group()
		e.pods = map[string]*member{}
		p, _ := b.decide(k, time.Now(), rules{})
		if len(p.make) != len(recorded) {
			t.Errorf("%s: %d pods are made, want %d", k.Name, len(p.make), len(recorded))
		}
		if d := cmp.Diff(g.Spec, b.groupSpec(e.job)); d != "" {
			t.Errorf("%s: the PodGroup (-Volcano's +ours):\n%s", k.Name, d)
		}
		for _, ours := range p.make {
			if d := cmp.Diff(bare(recorded[ours.Name].pod), bare(ours), cmpopts.EquateEmpty()); d != "" {
				t.Errorf("%s (-Volcano's +ours):\n%s", ours.Name, d)
			}
		}
		for _, o := range p.objects {
			switch o := o.Object.(type) {
			case *corev1.ConfigMap:
				for _, theirs := range left[corev1.ConfigMap](t, "configmaps.json") {
					if theirs.Name == o.Name {
						if d := cmp.Diff(theirs.Data, o.Data); d != "" {
							t.Errorf("ConfigMap %s (-Volcano's +ours):\n%s", o.Name, d)
						}
					}
				}
			case *corev1.Service:
				theirs := left[corev1.Service](t, "services.json")[0]
				if d := cmp.Diff(theirs.Spec.Selector, o.Spec.Selector); d != "" || theirs.Name != o.Name || o.Spec.ClusterIP != theirs.Spec.ClusterIP {
					t.Errorf("Service %s (-Volcano's +ours):\n%s", o.Name, d)
				}
				if d := cmp.Diff(theirs.OwnerReferences, o.OwnerReferences); d != "" {
					t.Errorf("Service %s (-Volcano's +ours):\n%s", o.Name, d)
				}
			}
		}
	}
}

// bare is a pod without what API servers, admission and kubelets add.
func bare(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{}
	p.UID, p.ResourceVersion, p.Generation, p.Status, p.Spec.NodeName = "", "", 0, corev1.PodStatus{}, ""
	p.CreationTimestamp.Reset()
	s := &p.Spec
	s.DNSPolicy, s.EnableServiceLinks, s.PreemptionPolicy, s.Priority, s.SecurityContext = "", nil, nil, nil, nil
	s.ServiceAccountName, s.DeprecatedServiceAccount, s.TerminationGracePeriodSeconds, s.Tolerations = "", "", nil, nil
	s.Volumes = slices.DeleteFunc(s.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, "kube-api-access-") })
	slices.SortFunc(s.Volumes, func(a, b corev1.Volume) int { return strings.Compare(a.Name, b.Name) }) // plugins come in any order
	for i := range s.Volumes {
		if c := s.Volumes[i].ConfigMap; c != nil {
			c.DefaultMode = nil
		}
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		c.ImagePullPolicy, c.TerminationMessagePath, c.TerminationMessagePolicy = "", "", ""
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(m.Name, "kube-api-access-") })
		slices.SortFunc(c.VolumeMounts, func(a, b corev1.VolumeMount) int { return strings.Compare(a.Name, b.Name) })
		slices.SortStableFunc(c.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	}
	return p
}
