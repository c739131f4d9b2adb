// Package kubetest is an API server in memory for the tests of everything that talks to one. Its requests, answers and watches are
// those of the real one, as far as Muster's roles use them, so that a role runs on it unchanged: with its own clients and caches, in one
// process with the test, in virtual time (testing/synctest) if the test likes, and with faults when the test says so.
//
//	test ──Put / Remove (as everybody else)──► Server ◄──HTTP, no socket── Process ◄── client, cache ── role
//	     ◄──Writes (what the roles did)──────         ◄── Faults: lost answers, conflicts, 429, stale watches, 410, crashes
//
// A scenario:
//
//	synctest.Test(t, func(t *testing.T) {
//		s := kubetest.New(kubetest.Options{})
//		p := s.Process("queue")
//		// A client and a cache as in a real process; the role's constructor gets them.
//		c, err := p.Client(scheme)
//		...
//		s.Put(queue)                                   // somebody makes a queue
//		synctest.Wait()
//		s.Writes()                                     // "patch Queue/status dept"
//		p.CrashAt(2, true)                             // the process dies after its second write took effect, before it hears so
//		next := s.Process("queue")                     // and is started anew
//	})
//
// What it keeps: resourceVersions that grow with each change; lists, and watches from a resourceVersion, with bookmarks, initial
// events and 410 where the history is forgotten; label and field selectors, with the events that they make of a change; optimistic
// concurrency by resourceVersion and UID; the status subresource apart from the rest; JSON, merge and strategic merge patches and
// server-side apply; writes that change nothing, which are no events; generateName; finalizers and the grace of pods; bindings;
// evictions under PodDisruptionBudgets; discovery. One table of requests (conformance_test.go) is answered alike by this server
// and, behind the build tag lab, by a real API server.
//
// What it leaves out: defaults, validation and pruning of what a kind's schema says, admission, authentication, controllers (garbage
// collection, kubelets; a test plays them by Put and Remove), and versions of a kind besides the one it is stored in.
package kubetest
