// Package ledgers keeps the lists that say what Muster does with KAI Scheduler's interface: properties.yaml for every property of the
// custom resources, flags.yaml for every command-line flag, differences.yaml for what Muster does otherwise, cases.yaml for
// the behaviour cases that it decides otherwise. virtlet.yaml says what muster-vm does with Virtlet's, volcano.yaml what is otherwise than in
// Volcano, kubebatch.yaml the same of kube-batch, upstream.yaml what becomes of each field of Kubernetes' own groups. They are pages for
// people; the tests beside them see to it that no row of the former is missing, left over or without evidence, and that the
// pages say what the last one does.
package ledgers
