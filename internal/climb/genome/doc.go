// Package genome describes a cluster in few numbers, so that a climber can change it a little at a time: groups of nodes, of queues and
// of gangs, and what the members of each have in common or apart. A genome is plain data and text (JSON); Lay makes a World of it, object by
// object, always the same. The package knows nothing of the engine, so that a program of another tree of Muster can be given the same genomes.
package genome
