// Package roles puts processes together: which roles there are, which flags each takes, and how one process runs one of
// them or all.
//
// It answers "muster run binder" and "muster run all". It refuses to know what a role does: each has a package of its own
// and gets a cache, a client, a logger and a registry from here. Roles of one process share one cache and one connection
// to the API server, and each runs under a Lease of its own, so that any split over processes is safe.
package roles
