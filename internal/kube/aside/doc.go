// Package aside sets aside what ends in a defect.
//
// Whatever a role does about an object that somebody else wrote goes through a Guard: a reconciler, a worker's step, an event handler, an
// index, a transform, an answer over HTTP. A panic in it is a defect of ours which that object brought out. It must not end the process:
// that would start again, meet the object again, and everybody would wait for it. So the work fails with ErrDefect instead, is logged
// with its stack and counted, and the role's queue tries it again with its back-off; the work of all others goes on. The same Guard
// has the process notice when the work hangs.
//
// What it does not do: mend what the work had changed by then. Whoever shares state between objects changes it last, and holds locks in
// such a way that a panic releases them.
package aside
