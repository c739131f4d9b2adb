//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestNoisyNeighbour: while one tenant has 2,500 pods whose owners are of as many kinds that do not exist, another one's gang is
// grouped and runs as if it were alone; the noisy one is told, and neither it nor the API server is flooded.
func TestNoisyNeighbour(t *testing.T) {
	const noisy = 2500
	w := newFixture(t, 4, lab.Options{})
	w.namespace(t, "noisy")
	// All are there before the podgrouper is, so that they come to it at once.
	var writers sync.WaitGroup
	failed := make([]error, 20)
	for k := range failed {
		writers.Go(func() {
			for i := k; i < noisy; i += len(failed) {
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{
						Namespace: "noisy", Name: fmt.Sprintf("p-%d", i), Labels: map[string]string{keys.QueueLabel: "team"},
						OwnerReferences: []metav1.OwnerReference{{
							APIVersion: fmt.Sprintf("g%d.example.org/v1", i), Kind: "Fleet", Name: "f", UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i)),
						}},
					},
					Spec: gang("noisy", "x", 1, "").Spec.Template.Spec,
				}
				if err := w.client.Create(t.Context(), p); err != nil {
					failed[k] = err
					return
				}
			}
		})
	}
	writers.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
	muster := newProcess(t, "all", w.lab.Kubeconfig())
	began := time.Now()
	muster.start()
	muster.awaitReady(t)
	value := func(name string) (sum float64) {
		for series, v := range scrape(t, muster.address) {
			if series == name {
				sum += v
			}
		}
		return sum
	}
	var slowest time.Duration
	for i := range 5 {
		namespace := fmt.Sprintf("quiet-%d", i)
		w.namespace(t, namespace)
		w.create(t, gang(namespace, "gang", 2, ""))
		slowest = max(slowest, w.must(t, 10*time.Second, w.allRunning(namespace, 2)))
	}
	told := 0
	took, lacking := w.await(time.Minute, func() string {
		told = 0
		for _, e := range list(w, &corev1.EventList{}, client.InNamespace("noisy")).Items {
			if e.Source.Component == "podgrouper" {
				told++
			}
		}
		if n := value("muster_podgrouper_warnings_total"); n < noisy || told < 200 {
			return fmt.Sprintf("%v of %d pods have been looked at, %d warnings are written", n, noisy, told)
		}
		return ""
	})
	if lacking != "" {
		t.Error(lacking)
	}
	passed := time.Since(began)
	reads := value(`muster_podgrouper_owner_reads_total{source="request"}`)
	if most := 200 + 2*passed.Seconds() + passed.Seconds()/10 + 10; float64(told) > most {
		t.Errorf("%d warnings were written in %v, want at most %.0f", told, passed, most)
	}
	if reads > 20 {
		t.Errorf("%v owners were asked for", reads)
	}
	t.Logf("five gangs beside %d pods of unknown kinds: the slowest ran after %v; all pods had been looked at after another %v, with %d warnings written and %v owners asked for",
		noisy, slowest.Round(time.Millisecond), took.Round(time.Millisecond), told, reads)
}
