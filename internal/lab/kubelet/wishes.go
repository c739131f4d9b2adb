package kubelet

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/lab"
)

// forever stands for a duration that never ends.
const forever = time.Duration(1<<63 - 1)

// wishes are what a pod's annotations ask of its kubelet. A value that cannot be read counts as absent, and its
// name is kept in bad, to be shown in the pod's status.
type wishes struct {
	startAfter, runFor, stopAfter time.Duration
	fail                          bool
	exitCode                      int32
	bad                           string
}

func wishesOf(pod *corev1.Pod) wishes {
	w := wishes{runFor: forever, exitCode: 1}
	read := func(key string, into *time.Duration) {
		text, ok := pod.Annotations[key]
		if !ok {
			return
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			w.bad = key
			return
		}
		*into = d
	}
	read(lab.AnnotationStartAfter, &w.startAfter)
	read(lab.AnnotationRunFor, &w.runFor)
	if pod.Annotations[lab.AnnotationStopAfter] == "never" {
		w.stopAfter = forever
	} else {
		read(lab.AnnotationStopAfter, &w.stopAfter)
	}
	switch pod.Annotations[lab.AnnotationOutcome] {
	case "fail":
		w.fail = true
	case "", "succeed":
	default:
		w.bad = lab.AnnotationOutcome
	}
	if text, ok := pod.Annotations[lab.AnnotationExitCode]; ok {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil && n > 0 && n < 256 {
			w.exitCode = int32(n)
		} else {
			w.bad = lab.AnnotationExitCode
		}
	}
	return w
}
