// Package nodeuse asks a Prometheus server how busy nodes are, for Volcano's plugin usage: what of the CPU and the memory of each was in use over the last ten minutes, by the
// metrics of node_exporter.
//
// A series is of the node that its label node names; without one, of the node that calls itself as node_uname_info of its instance says (nodename), or else as the instance is called
// without its port. Of a node that is not known here nothing is kept.
//
// An answer is taken in once in an interval, in whole percents, and of a node only if it differs from what was told of it, or is two minutes newer: where nothing changes the scheduler
// has something to look at every two minutes at most. A server that fails is asked again after one interval, then two, four, and so on up to five minutes; nobody waits for it, and
// what it said counts as long as the plugin lets it.
package nodeuse
