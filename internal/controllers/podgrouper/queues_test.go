package podgrouper

import (
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// TestAuthorizedQueues: where queues are authorized, a gang's queue comes from nothing that its author was not judged for.
func TestAuthorizedQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const queue, project = keys.QueueLabel, keys.ProjectLabel
		labelled := func(o client.Object, labels map[string]string) client.Object {
			o.SetLabels(labels)
			return o
		}
		namespace := func(owners ...metav1.OwnerReference) client.Object {
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "rich", UID: "u-rich", Labels: map[string]string{queue: "rich"}, OwnerReferences: owners}}
		}
		byJob := func(labels map[string]string) client.Object {
			return labelled(podOf("p", ref("batch/v1", "Job", "train")), labels)
		}
		for name, c := range map[string]struct {
			pod     client.Object
			owners  []client.Object
			off, on string // the queue, without and with authorization
			told    string // with it
		}{
			"the label of an owner beside the pod": {pod: byJob(nil), owners: []client.Object{labelled(job("train", nil), map[string]string{queue: "rich"})}, off: "rich", on: "rich"},
			"project on an owner": {
				pod: byJob(nil), owners: []client.Object{labelled(job("train", nil), map[string]string{project: "rich"})},
				off: "rich", on: keys.DefaultQueue, told: "Job team/train: label project: names no queue where queues are authorized",
			},
			"project on the pod":                {pod: labelled(podOf("p", nil), map[string]string{project: "rich"}), off: "rich", on: keys.DefaultQueue, told: "label project"},
			"project beside the pod's label":    {pod: byJob(map[string]string{project: "rich", queue: "own"}), owners: []client.Object{labelled(job("train", nil), map[string]string{project: "rich"})}, off: "own", on: "own"},
			"an owner without a namespace":      {pod: podOf("p", ref("v1", "Namespace", "rich")), owners: []client.Object{namespace()}, off: "rich", on: keys.DefaultQueue},
			"one above another":                 {pod: byJob(nil), owners: []client.Object{job("train", nil, *ref("v1", "Namespace", "rich")), namespace()}, off: "rich", on: keys.DefaultQueue},
			"what is above one of them":         {pod: podOf("p", ref("v1", "Namespace", "rich")), owners: []client.Object{namespace(*ref("batch/v1", "Job", "train")), labelled(job("train", nil), map[string]string{queue: "old"})}, off: "old", on: keys.DefaultQueue},
			"the pod's label against its owner": {pod: byJob(map[string]string{queue: "own"}), owners: []client.Object{labelled(job("train", nil), map[string]string{queue: "rich"})}, off: "rich", on: "own"},
		} {
			for _, authorized := range []bool{false, true} {
				w := newFakeAPI(t, func(o *Options) { o.AuthorizeQueues = authorized }, append(c.owners, c.pod)...)
				w.mustReconcile("p")
				want, told := c.off, ""
				if authorized {
					want, told = c.on, c.told
				}
				var groups v2alpha2.PodGroupList
				if err := w.role.deps.Reader.List(t.Context(), &groups); err != nil || len(groups.Items) != 1 || groups.Items[0].Spec.Queue != want {
					t.Errorf("%s, authorized %t: %v, groups %+v, want one of queue %q", name, authorized, err, groups.Items, want)
				}
				if all := strings.Join(w.events, "\n"); (told != "") != (all != "") || !strings.Contains(all, told) {
					t.Errorf("%s, authorized %t: events %q, want %q", name, authorized, all, told)
				}
			}
		}
	})
}

// TestPodOfAnotherQueue: where queues are authorized, a pod that names one queue is not put into a gang of another.
func TestPodOfAnotherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		group := func(queue string, labels map[string]string) *v2alpha2.PodGroup {
			return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pg-train-u-train", UID: "g", Labels: labels}, Spec: v2alpha2.PodGroupSpec{Queue: queue}}
		}
		for name, c := range map[string]struct {
			authorized bool
			label      string
			group      *v2alpha2.PodGroup
			told       string
		}{
			"another queue's":              {true, "own", group("rich", nil), `must name the queue of the pod's gang, "rich", where queues are authorized; names "own"`},
			"the gang's":                   {true, "rich", group("rich", nil), ""},
			"none":                         {true, "", group("rich", nil), ""},
			"that of a gang that moved on": {true, "old", group("rich", map[string]string{keys.QueueLabel: "old"}), ""},
			"without authorization":        {false, "own", group("rich", nil), ""},
		} {
			p := podOf("p", ref("batch/v1", "Job", "train"))
			if c.label != "" {
				p.Labels = map[string]string{keys.QueueLabel: c.label}
			}
			w := newFakeAPI(t, func(o *Options) { o.AuthorizeQueues = c.authorized }, p, job("train", nil), c.group)
			w.mustReconcile("p")
			if joined := w.pod("p").Annotations[keys.PodGroupAnnotation] != ""; joined == (c.told != "") {
				t.Errorf("%s: joins: %t", name, joined)
			}
			if all := strings.Join(w.events, "\n"); (c.told != "") != (all != "") || !strings.Contains(all, c.told) {
				t.Errorf("%s: events %q, want %q", name, all, c.told)
			}
		}
	})
}

// TestNamedGangOfAnotherQueue: where queues are authorized, the labels by which pods of Spark name their gang bring no pod into a gang
// of a queue that its author was not judged for, and change nothing of such a gang.
func TestNamedGangOfAnotherQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const spark = "spark-app-selector"
		pod := func(queue string, owner *metav1.OwnerReference) *corev1.Pod {
			p := podOf("p", owner)
			p.Labels = map[string]string{spark: "hers", "spark-app-name": "x", keys.PreemptibilityLabel: "non-preemptible"}
			if queue != "" {
				p.Labels[keys.QueueLabel] = queue
			}
			return p
		}
		driver := func(queue string) *corev1.Pod {
			p := podOf("driver", nil)
			p.Labels = map[string]string{keys.QueueLabel: queue}
			return p
		}
		group := func(queue, made, owner string) *v2alpha2.PodGroup {
			g := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "hers", UID: "g"}, Spec: v2alpha2.PodGroupSpec{Queue: queue}}
			if made != "" {
				g.Labels = map[string]string{keys.QueueLabel: made}
			}
			if owner != "" {
				g.OwnerReferences = []metav1.OwnerReference{*ref("v1", "Pod", owner)}
			}
			return g
		}
		const told = `PodGroup team/hers: spec.queue: must be the queue of the pods that name it where queues are authorized`
		for name, c := range map[string]struct {
			authorized bool
			pod        *corev1.Pod
			group      *v2alpha2.PodGroup
			told       string
		}{
			"no queue":                     {true, pod("", nil), group("rich", "", ""), told},
			"no queue, a gang's with one":  {true, pod("", nil), group("rich", "rich", "driver"), told},
			"another queue":                {true, pod("own", nil), group("rich", "rich", ""), told},
			"the default queue":            {true, pod(keys.DefaultQueue, nil), group("rich", "", ""), told},
			"the same queue":               {true, pod("rich", nil), group("rich", "rich", ""), ""},
			"one that was moved":           {true, pod("own", nil), group("rich", "own", ""), ""},
			"of one driver":                {true, pod("own", ref("v1", "Pod", "driver")), group("own", "own", "driver"), ""},
			"of one driver that was moved": {true, pod("", ref("v1", "Pod", "driver")), group("rich", "own", "driver"), ""},
			"of no queue, by default":      {true, pod("", nil), group("", "", ""), ""},
			"without authorization":        {false, pod("", nil), group("rich", "", ""), ""},
		} {
			w := newFakeAPI(t, func(o *Options) { o.AuthorizeQueues = c.authorized }, c.pod, driver("own"), c.group)
			w.mustReconcile("p")
			if joined := w.pod("p").Annotations[keys.PodGroupAnnotation] == "hers"; joined == (c.told != "") {
				t.Errorf("%s: joins: %t", name, joined)
			}
			now := w.podGroup(c.group.Name)
			if changed := now.Spec.Preemptibility != "" || now.Spec.MinMember != nil; changed == (c.told != "") {
				t.Errorf("%s: the PodGroup is changed: %t", name, changed)
			}
			if all := strings.Join(w.events, "\n"); (c.told != "") != (all != "") || !strings.Contains(all, c.told) {
				t.Errorf("%s: events %q, want %q", name, all, c.told)
			}
		}
	})
}

// TestOwnerRelabelledLater: a gang keeps the queue label that it was made with when its owner's comes to name another queue, or whoever
// may use that one would bring pods into a gang of the first.
func TestOwnerRelabelledLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		owner := job("train", nil)
		owner.Labels = map[string]string{keys.QueueLabel: "own", "team": "a"}
		for _, made := range []map[string]string{{keys.QueueLabel: "rich"}, nil} {
			p := podOf("p", ref("batch/v1", "Job", "train"))
			p.Labels = map[string]string{keys.QueueLabel: "own"}
			group := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pg-train-u-train", UID: "g", Labels: made}, Spec: v2alpha2.PodGroupSpec{Queue: "rich"}}
			w := newFakeAPI(t, func(o *Options) { o.AuthorizeQueues = true }, p, owner, group)
			w.mustReconcile("p")
			now := w.podGroup(group.Name)
			if now.Labels[keys.QueueLabel] != made[keys.QueueLabel] || now.Spec.Queue != "rich" || now.Labels["team"] != "a" {
				t.Errorf("made as %v: labels %v, queue %s", made, now.Labels, now.Spec.Queue)
			}
			if w.pod("p").Annotations[keys.PodGroupAnnotation] != "" {
				t.Errorf("made as %v: the pod is taken in", made)
			}
		}
	})
}
