// Package vcjob is the job controller of Volcano's face: it makes the pods of Volcano's Jobs (batch.volcano.sh), keeps their PodGroup, and
// answers what happens to them as their policies say.
//
//	Job, Pod, PodGroup, Command, Queue, … ──► book ──Decide──► plan ──Write──► status first, then pods
//
// A look at a Job either changes its phase, or does the work of the phase that it is in. A change of phase is one write, of the Job's status:
// it counts the retry, raises the version and says whom a restart is about. All that follows from it (pods that are marked and deleted, a
// PodGroup that is deleted, pods that are made) is read off the status and the pods, so that a controller that dies between any two writes
// finds the rest of its work: no retry is counted twice, and no pod made twice.
//
// What happens to a Job is read off what is there too, where it leaves a trace: a pod that has failed, waits, or was restarted too often, a
// task whose pods have all succeeded, a PodGroup that lost its place. So a controller that was away still answers it. Only that a pod was
// deleted, and that a spec was changed, is known by who saw it.
//
// The words (action, event, policy, retry, version, out of sync) are Volcano's. Where this package does otherwise than Volcano,
// docs/ledgers/volcano.yaml says so.
package vcjob
