package vcjob

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// BenchmarkDecide is one look at a Job of 8 tasks of one pod with the plugins env and svc: the one that makes all its pods, and one after an event of a pod that changes nothing.
func BenchmarkDecide(b *testing.B) {
	books := newBook()
	books.queueSeen(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, false)
	j := wide("j", 8)
	j.UID, j.Generation, j.ResourceVersion = "u", 1, "1"
	k, o, now := key{Namespace: j.Namespace, Name: j.Name}, rules{refusals: 15, scheduler: "volcano"}, time.Unix(1e9, 0)
	books.jobSeen(j, false)
	p, _ := books.decide(k, now, o)
	j.Status = *p.status
	g := p.group.group
	g.Status.Phase = scheduling.PodGroupInqueue
	books.groupSeen(g, false)
	p, _ = books.decide(k, now, o)
	if len(p.make) != 8 || p.status != nil || p.group != nil {
		b.Fatalf("the first look makes %d pods, want 8 and nothing else: %+v", len(p.make), p)
	}
	b.Run("making", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			books.decide(k, now, o)
		}
	})
	for i, pod := range p.make {
		pod.UID, pod.Status.Phase = types.UID(fmt.Sprint(i)), corev1.PodRunning
		books.podSeen(pod, false)
	}
	p, _ = books.decide(k, now, o)
	j.Status = *p.status
	b.Run("settled", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p, _ := books.decide(k, now, o); p.status != nil {
				b.Fatal("the status changes")
			}
		}
	})
}
