// Package vcctl is the command line of Volcano: vcctl with its commands, and the programs of one purpose that come with it (vsub, vjobs,
// vqueues, vcancel, vsuspend, vresume). Commands, flags, defaults and columns are Volcano's; help and messages are Muster's. It reads and writes
// API objects as its user, and needs no part of Muster to run.
package vcctl
