// Package kai translates KAI's API family (Queue, PodGroup, BindRequest, and the labels and annotations of pods) into the
// scheduler's model, and the scheduler's decisions back into it.
//
// It answers "which gang is this, what does it need, who pays", "where is this pod already promised to", and "what object
// asks the binder for this placement". It refuses to decide, to read a clock, and to talk to an API server. The feed calls
// it with what it observed; appliers, the binder, admission and tests call it for the way back and for its rules.
//
//	PodGroup + Priorities ──► Gang()       ──► cluster.GangState
//	Queue                 ──► Queue()      ──► cluster.QueueState, problem
//	BindRequest           ──► Read()       ──► Binding
//	Pod (+ Binding)       ──► Roles.Pod()  ──► cluster.PodState
//	Intent                ──► BindRequest() ──► BindRequest
//
// An object that breaks a rule never makes a call fail: a PodGroup becomes a gang that says why it cannot be scheduled
// (cluster.Gang.Invalid), a Queue gets a safe value and a problem text, an unreadable annotation counts as absent.
//
// Where KAI keys PodGroups by bare name, this dialect keys them by namespace and name, and a pod belongs only to a gang of
// its own namespace: two teams' PodGroups of one name are two gangs.
package kai
