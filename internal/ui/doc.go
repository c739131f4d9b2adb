// Package ui answers people's questions about waiting work over HTTP: why a gang waits, what would change that and when it starts, the gangs of a namespace, the ladder of queues, what was decided (package journal), and what changes would do. It
// is the role ui of the control plane, and the command `muster ui` on a person's own machine.
//
//	scheduler ──TLS──► cycles.Client ─► Following: decided again ─► see.Cycle ─► see.Explain, Gangs, Queues ─► scope of the viewer ─► JSON, pages
//	                                                                                      ▲
//	                             token ─► TokenReview ─► SubjectAccessReview ─────────────┘
//
// It answers "who asks, what may he read, and how much work may he cause". It decides nothing and writes nothing but reviews. What it says is package see's; here
// it is only fetched, narrowed and drawn. Everything that leaves it has passed the viewer's scope: names of namespaces whose podgroups he may not get are not told.
//
// Work is bounded: so many questions at once, so many of one person, each for so long; who finds no room is told when to come again.
//
// Weakness: a queue is one's own when a gang of a namespace that one may read names it. Whoever may make PodGroups can therefore read the figures of a queue that he
// may not list, as `muster explain` tells him its limit too; no names of others are in them.
package ui
