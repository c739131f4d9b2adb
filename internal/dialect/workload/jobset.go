package workload

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// Labels that the JobSet controller puts on pods.
const (
	jobSetReplicatedJob = "jobset.sigs.k8s.io/replicatedjob-name"
	jobSetJobIndex      = "jobset.sigs.k8s.io/job-index"
)

// jobSetTree has a subgroup for each replicated job, and in it one for each of its Jobs. Which replicated jobs must be
// complete: as many as the annotation says; else those that are started first, which is one when they start in order and
// those that wait for no other when they depend on each other; else all.
func jobSetTree(h *hints) (*tree, error) {
	const list = "spec.replicatedJobs"
	jobs, err := h.listAt(list)
	if err != nil {
		return nil, err
	}
	out := &tree{}
	replicas := map[string]int32{}
	counts := []int64{0}
	count, first, leaves := int32(0), int32(0), int64(0)
	for i, j := range jobs {
		at := indexed(list, i, ".")
		name := textAt(j, "name")
		if name == "" {
			return nil, invalidField(h.facts, at+"name", "must be there")
		}
		n, err := h.number(j, at, "replicas", 0, 1)
		if err != nil {
			return nil, err
		}
		replicas[name] = n
		if n == 0 {
			continue
		}
		if leaves += int64(n); leaves > MaxSegments {
			return nil, invalidField(h.facts, list, "must have at most %d Jobs, has %d", MaxSegments, leaves)
		}
		pods, err := h.jobSetPods(j, at)
		if err != nil {
			return nil, err
		}
		count++
		if needs, _ := j["dependsOn"].([]any); len(needs) == 0 {
			first++
		}
		counts = append(counts, int64(n)*int64(pods))
		constraint := h.templateTopology(stringsAt(j, "template.metadata.annotations"),
			stringsAt(j, "template.spec.template.metadata.annotations"))
		out.subGroups = append(out.subGroups, inner(name, n))
		for k := range n {
			s := leaf(jobSetLeaf(name, k), pods, name)
			s.TopologyConstraint = constraint.DeepCopy()
			out.subGroups = append(out.subGroups, s)
		}
	}
	if count == 0 {
		return nil, invalidField(h.facts, list, "must have a job with at least 1 replica")
	}
	least := max(first, 1)
	if textAt(h.facts.Content, "spec.startupPolicy.startupPolicyOrder") == "InOrder" {
		least = 1
	}
	if n, found := h.positive(h.subject, keys.BatchMinMemberAnnotation); found {
		least = min(n, count)
	}
	out.minSubGroup = &least
	out.members = Members{place: func(pod *corev1.Pod) (string, error) { return jobSetPlace(pod, replicas) }}
	out.minimum, err = h.sum(list, counts...)
	return out, err
}

// jobSetPods is the number of pods that one Job needs: what its template says, else as many as it runs at a time.
func (h *hints) jobSetPods(j map[string]any, at string) (int32, error) {
	annotations := stringsAt(j, "template.metadata.annotations")
	if _, set := annotations[keys.BatchMinMemberAnnotation]; set {
		o := *h.facts
		o.Annotations = annotations
		if n, found := h.positive(&o, keys.BatchMinMemberAnnotation); found {
			return n, nil
		}
	}
	parallelism, err := h.number(j, at, "template.spec.parallelism", 0, 1)
	if err != nil {
		return 0, err
	}
	completions, err := h.number(j, at, "template.spec.completions", 0, parallelism)
	return min(parallelism, completions), err
}

func jobSetLeaf(job string, i int32) string { return job + "-replica-" + strconv.Itoa(int(i)) }

func jobSetPlace(pod *corev1.Pod, replicas map[string]int32) (string, error) {
	self := FromPod(pod)
	name := pod.Labels[jobSetReplicatedJob]
	n, ok := replicas[name]
	if !ok {
		return "", invalidField(&self, "label "+jobSetReplicatedJob, "must name one of the workload's jobs (%s), is %q", some(sortedKeys(replicas)), name)
	}
	i, err := strconv.ParseInt(pod.Labels[jobSetJobIndex], 10, 32)
	if err != nil || i < 0 || i >= int64(n) {
		return "", invalidField(&self, "label "+jobSetJobIndex, "must be from 0 to %d, is %q", n-1, pod.Labels[jobSetJobIndex])
	}
	return jobSetLeaf(name, int32(i)), nil
}
