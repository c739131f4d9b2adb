// Package vcjobflow is the controller of Volcano's JobFlows: it makes a Job (batch.volcano.sh) of a JobTemplate for each part of a flow, when those that the part depends on
// are completed, or, with a probe, ready; and says in the status what became of them.
//
//	JobFlow, JobTemplate, Job ──► book ──decide──► plan ──write──► Jobs, status, questions to pods
//
// A Job is called by the flow and the part, so that a controller that dies makes none twice. One that was completed stays so for the flow, also when it is deleted
// afterwards. The answers of pods are remembered until the Job that waited for them is made; a controller that is started anew asks again.
package vcjobflow
