// Package hypervisor says what the runtime needs of a hypervisor, in the runtime's words. Two packages below do it: libvirt speaks with a
// libvirtd over its socket, and fake keeps machines in memory, in a time of its own and with failures to order. Package conformance holds what
// both have to pass.
//
// A scenario. Define takes the XML that package domain has made. Start gives the process that is the machine, its CPUs held; the caller puts it into
// the pod's cgroup and lets it go with Resume. Hours later the guest powers off: an Event says Off, ShutDown. Had libvirtd been gone
// at that moment, calls would have been Unavailable, and after it came back the same Event would have been made up from what is there then.
//
// What holds for every implementation:
//
//   - A machine is called by its UUID. Only machines whose metadata has our element are known, listed or touched: another's is NotFound, and
//     a Define that would replace one is a Conflict.
//   - Errors have the kinds of package vm. Unavailable: the hypervisor does not answer now, or the context ended; what became of the call is
//     open, and it may be repeated. Nothing is repeated on the caller's behalf.
//   - Every call may be repeated: what is started already is not started again, what is off or gone is not ended again, without an error.
//   - What comes back is bounded, whoever made it: texts of errors to 8 KiB, answers of guests to what the caller says.
//   - After Close every call is Unavailable, and nothing is left running but machines.
package hypervisor
