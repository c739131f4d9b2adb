package vcjob

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// mostTogether is how many writes about one Job are under way at a time. A write takes the API server some milliseconds of waiting, of which a Job of many pods would otherwise have one after the other.
const mostTogether = 16

// side has what is written about one Job done side by side; a defect in one piece is set aside by the guard as one of the Job.
type side struct {
	guard *aside.Guard
	job   *batch.Job
}

// together does all of it at once, at most mostTogether at a time, and returns what failed.
func (s side) together(all []func() error) error {
	errs := make([]error, len(all))
	for from := 0; from < len(all); from += mostTogether {
		var group sync.WaitGroup
		for i := from; i < min(from+mostTogether, len(all)); i++ {
			group.Go(func() { errs[i] = s.guard.Catch("the writes about a Job of Volcano's", s.job, all[i]) })
		}
		group.Wait()
	}
	return errors.Join(errs...)
}

// slowly does so many things: the first by itself, and the rest, mostTogether at a time, if that was well. It ends after those at once of which one failed, since the rest would hardly fare better, and returns what failed.
func (s side) slowly(n int, do func(i int) error) error {
	for done, size := 0, 1; done < n; size = mostTogether {
		var some []func() error
		for i := done; i < min(done+size, n); i++ {
			some = append(some, func() error { return do(i) })
		}
		if err := s.together(some); err != nil {
			return err
		}
		done += len(some)
	}
	return nil
}

// alike is how many of the first pods are of one priority class: those of a higher one are there before any of the next is made.
func alike(pods []*corev1.Pod) int {
	for i, p := range pods {
		if p.Spec.PriorityClassName != pods[0].Spec.PriorityClassName {
			return i
		}
	}
	return len(pods)
}
