// Package conformity asks the CRI's own test suite, critest, what it makes of muster-vm: directly, and through the proxy with containerd beside it.
//
// Its tests run on a node of their own: mounts, network and processes of its own, a libvirtd, `muster-vm up`, and where wanted a containerd.
// Images come from registries that the test serves. Tables in testdata have every spec of the suite, with what is expected of it:
//
//	passes   it has to pass
//	fails    it is run, and fails for a reason, with a failure that has certain words; once it passes, the table has to say so
//	cannot   it does not apply to pods that are machines, for a reason, and is not run
//
// A spec that the suite has and the table has not, or the other way round, is an error: so is seen what a newer suite asks for.
//
// The package is a module of its own, because the suite's dependencies are nobody else's. make prove-vm builds what it needs and runs it; without
// that the tests that need a node are skipped, and say NOT CHECKED.
package conformity
