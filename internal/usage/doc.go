// Package usage knows which part of the cluster each queue used lately.
//
// It answers one question, "what did queue q use of dimension d, as a part of the cluster, over the window", from samples
// of what queues held and of what the cluster had:
//
//	                Σ held(q, d, t) · 0.5^((now − t) / half-life)
//	usage(q, d)  =  ─────────────────────────────────────────────      t = every resolution step in (start of the window, now]
//	                Σ  had(d, t)    · 0.5^((now − t) / half-life)
//
// without the powers if no half-life is set. The division (package fairshare) turns it into shares.
//
// [Config] is KAI's usageDBConfig, [Window] says where the window starts, a [Reader] puts the questions to anything that
// answers PromQL. Two things do: a Prometheus server (package promapi) and our own store on disk (package history). The
// [Keeper] asks one of them again and again, keeps the last answer, and hands it to the scheduler's loop as an event.
//
//	snapshot ──► Keeper.Observe ──► history ◄──┐
//	                                           ├── Reader ◄── Keeper ──► event ──► cluster.Store
//	queue role ──────────────► Prometheus ◄────┘
//
// It refuses to guess: a dimension of which the cluster had nothing has no usage, and a source that does not answer
// leaves the last answer in place, however old it is; a metric and the log say how old.
package usage
