// Package libvirt is a hypervisor.Hypervisor that speaks libvirt's wire protocol with a libvirtd, over its unix socket and without cgo.
//
// One connection is kept for what libvirtd answers at once, and for its events. What may take long (a start, a save, a guest's agent) has a
// connection of its own, because libvirtd serves five calls of a connection at a time: a context that ends closes it, so that nobody waits for
// a stuck machine but its own caller, and nothing is left behind.
//
// When libvirtd goes, calls are Unavailable at once. It is dialled again after 0.1 s, then after twice as long each time, up to 5 s; what has changed
// meanwhile is found by comparison and told as events, and a Resync follows. The comparison is repeated, often at first: libvirtd does not tell of machines
// that it misses when it starts. A libvirtd that holds the connection and says nothing for
// Options.Patience is taken for gone.
//
// What libvirtd sends passes a guard first (guard.go): the client library believes lengths, and one wrong packet would end the process.
package libvirt
