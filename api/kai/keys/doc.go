// Package keys names the labels, annotations and fixed names that KAI Scheduler's components and its users share:
// what is not a field of one of the custom resources, yet part of the interface.
//
// Each constant says which object carries the key, who writes it, and what its value means. The package holds strings
// only and imports nothing; whoever reads a key parses its value. Two of the label keys are defaults that an
// installation can change, QueueLabel and NodePoolLabel.
//
// Names are grouped by purpose: gangs and queues, topology, GPUs, the scheduler's notes, fixed names.
package keys
