// Package fake is a hypervisor in memory for tests of whoever uses one: hundreds of machines cost nothing, and what happens is decided by the test alone.
//
// A Host is a node's libvirtd with its machines. It outlives its Clients, as libvirtd outlives the runtime: a test kills the runtime by a Fault
// that makes its Client dead, and connects anew. Time is the Host's own: nothing moves but by Advance, which lets guests boot, shut down and end in
// the order of their times; those of one moment go in the order in which they were asked.
//
//	h := fake.NewHost(fake.Options{})
//	c := h.Connect(fake.CrashAt(3, true)) // the third call is carried out, and its caller never learns
package fake
