// Package submit answers one question: what would a cluster's store be told if somebody applied these manifests?
//
//	text ──documents──► Pod, Job, PyTorchJob, JobSet, PodGroup ──as their controllers do──► pods ──workload.Table──► PodGroups ──Translator──► cluster.Event
//
// It does in memory what the controllers of Kubernetes, of kubeflow and of JobSet do with such objects, as far as it matters to who schedules: how many pods there are, and by which labels
// they are told apart. Whose gang a pod is, the podgrouper's own rules say; what pods and gangs mean, the translator that the scheduler uses. Other kinds, and what these would have to know of the
// cluster to be simulated (devices by claim), are refused by name and rule.
//
// It is pure: no client, no clock, and one input gives one Submission; its UIDs are made up. Texts, documents, pods and gangs are bounded. It never panics on a manifest.
//
// Weakness: what admission would add to a pod (a runtime class, an environment for a shared GPU) is not added, and quotas of namespaces are not looked at.
package submit
