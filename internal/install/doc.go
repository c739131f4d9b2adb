// Package install says what a Muster installation consists of. It answers which objects a Config and its SchedulingShards
// ask for (Render), what each component is called, where it listens, and what it may do (Rules).
//
// It is pure: objects come in, objects go out. It has no client and no clock, and what it has to know about the cluster
// (which foreign kinds there are, whether GPUs are simulated) is in the Environment. The operator applies what it returns,
// `muster render` prints it, the chart and the tests of roles read its names.
//
// It refuses to guess: what it cannot honour it reports as a Warning that names object, field and rule, and a shard that
// cannot run is an error of its own that leaves the other shards alone. It never changes what it is given: KAI's defaults
// are filled in on a copy.
//
//	Config, shards ──► defaults ──► operands ──► objects, each labelled with its component and, if it has one, its shard
//	                                   │
//	                          Rules: who may do what
package install
