// Package core translates the objects every Kubernetes cluster has, Node, Pod and PodDisruptionBudget, into the
// scheduler's model.
//
// It answers "what does this Node offer", "what does this Pod take, where may it run, and does anybody make it anew", and
// "what does this budget allow". It refuses to know any
// API family beyond these: which gang a pod is in, whose scheduler it asks for and which of its wishes cannot be
// honoured yet are said by the dialect of that family, which completes what this package returns. It has no client,
// no clock and no state; feeds, simulators and tests call it with plain objects.
//
//	Node ──► Node() ──► cluster.NodeState
//	Pod  ──► Pod()  ──► cluster.PodState without Gang, SetName, Ours, Utility, Spec.Unsupported, Spec.RestrictTo
//
// What it returns shares maps and slices with the object it was made from (labels, tolerations, affinity terms), because
// objects from an informer are never written to. The caller must not write to an object it has translated.
//
// Every amount is clamped (cluster.Clamp): no object, however absurd, makes a sum overflow.
//
// Weakness: GPUs of both vendors count in the one dimension "gpu", as in KAI. A pod that asks for amd.com/gpu also
// takes the dimension of that name and so never lands on a node of the other vendor; a pod that asks for nvidia.com/gpu
// in a cluster of both kinds needs a node selector.
package core
