package monitoring

// scheduler answers: does it decide, how fast, what, and why not?
func scheduler() Dashboard {
	perPlacement := func(by string) string {
		gpus := func(fate string) string {
			return `sum` + by + ` (increase(muster_disruption_gpus_total{fate="` + fate + `"}[1h]))`
		}
		return gpus("evicted") + ` / (` + gpus("placed") + ` > 0)`
	}
	return Dashboard{
		Name: "scheduler", Title: "Muster / Scheduler",
		Help: "Does the scheduler decide, how fast, what does it decide, and why do gangs wait?",
		Panels: []Panel{
			{Title: "Looks per second", Help: "How often the scheduler looks at the cluster: at least once in each --schedule-period. At 0 it hangs, or nobody leads.", Kind: Stat, Unit: PerSecond, Width: 4, Height: 4, Queries: one(`sum(rate(muster_scheduler_looks_total[$__rate_interval]))`, "looks")},
			{Title: "Last run", Help: "Duration of the last run that decided.", Kind: Stat, Unit: Milliseconds, Width: 4, Height: 4, Queries: one(`max(kai_e2e_scheduling_latency_milliseconds)`, "run")},
			{Title: "Gangs waiting", Help: "Gangs that the last run could not give room.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`sum(muster_gangs_waiting)`, "gangs")},
			{Title: "GPUs evicted per GPU placed", Help: "Over an hour, by decisions that evict. Around 1 is healthy; far above it, much work is lost for little.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(perPlacement(""), "per placement")},
			{Title: "Evictions under way", Help: "Decisions whose evictions are being carried out. One that stays up has a victim that refuses to go.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Calm: true, Queries: one(`sum(muster_evicting_bundles)`, "decisions")},
			{Title: "Overcommitted nodes", Help: "Nodes on which more is used than there is. Muster does not do that; somebody else binds pods there.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Calm: true, Queries: one(`max(muster_overcommitted_nodes)`, "nodes")},

			{Title: "Run time", Help: "Runs of the engine, from the snapshot to the last plan.", Kind: Lines, Unit: Seconds, Width: 12, Height: 8, Queries: quantiles("muster_scheduler_run_seconds")},
			{Title: "Time by action, in the last run", Help: "Which action takes the time. Actions that evict search longest when there is nothing to find.", Kind: Lines, Unit: Milliseconds, Width: 12, Height: 8, Queries: one(`max by (action) (kai_action_scheduling_latency_milliseconds)`, "{{action}}")},
			{Title: "Why gangs wait", Help: "Waiting gangs by the rule that blocks them; muster explain tells the change that would help.", Kind: Lines, Unit: Number, Width: 12, Height: 8, Queries: one(`sum by (reason) (muster_gangs_waiting)`, "{{reason}}")},
			{Title: "Gangs given room", Help: "Decisions that bind, by action.", Kind: Lines, Unit: PerSecond, Width: 12, Height: 8, Queries: one(`sum by (action) (rate(kai_podgroups_scheduled_by_action[$__rate_interval]))`, "{{action}}")},
			{Title: "Pods evicted", Help: "By the right they were evicted by; moved ones included.", Kind: Lines, Unit: PerSecond, Width: 12, Height: 8, Queries: one(`sum by (right) (rate(muster_evictions_total[$__rate_interval]))`, "{{right}}")},
			{Title: "GPUs evicted per GPU placed, by right", Help: "Over an hour. Consolidation moves pods: what it evicts has room elsewhere.", Kind: Bars, Unit: Number, Width: 12, Height: 8, Queries: one(perPlacement(" by (right)"), "{{right}}")},

			{Title: "Time from a pod's creation to its decision", Help: "As tenants feel it: waiting for room included. (KAI's metric; pods' creation is known to the second.)", Kind: Lines, Unit: Milliseconds, Width: 8, Height: 8, Queries: quantiles("kai_task_scheduling_latency_milliseconds")},
			{Title: "Feed: how long changes wait", Help: "How far decisions lag behind the API server's news.", Kind: Lines, Unit: Seconds, Width: 8, Height: 8, Queries: quantiles("muster_feed_lag_seconds")},
			{Title: "Feed: changes taken in", Help: "Changed objects per second.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(`sum(rate(muster_feed_events_total[$__rate_interval]))`, "objects")},

			{Title: "Snapshot", Help: "Time to take the snapshot of the last run: it costs what has changed, not what there is.", Kind: Lines, Unit: Seconds, Width: 8, Height: 8, Queries: one(`max(muster_scheduler_snapshot_seconds)`, "snapshot")},
			{Title: "Objects in the snapshot", Help: "The size of the cluster as the scheduler sees it.", Kind: Lines, Unit: Number, Width: 8, Height: 8, Queries: one(`sum by (kind) (muster_scheduler_objects)`, "{{kind}}")},
			{Title: "GPUs free and unusable", Help: "Fragmentation: free GPUs that the next pod could not use.", Kind: Lines, Unit: Number, Width: 8, Height: 8, Queries: []Query{{`sum(muster_gpus_free)`, "free"}, {`sum(muster_gpus_unusable)`, "unusable"}}},

			{Title: "Decisions made anew, pairs frozen", Help: "Bundles that could not be written; and pairs of gangs that displaced each other again and again, and are left alone for a while.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Calm: true, Queries: []Query{{`sum(rate(muster_scheduler_failed_bundles_total[$__rate_interval]))`, "failed bundles"}, {`sum(rate(muster_frozen_pairs_total[$__rate_interval]))`, "frozen pairs"}}},
			{Title: "Memory", Help: "Of processes that run a scheduler.", Kind: Lines, Unit: Bytes, Width: 8, Height: 8, Queries: one(`process_resident_memory_bytes and on (instance) muster_scheduler_looks_total`, "{{instance}}")},
			{Title: "Processor", Help: "Cores used by processes that run a scheduler.", Kind: Lines, Unit: Number, Width: 8, Height: 8, Queries: one(`rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) muster_scheduler_looks_total`, "{{instance}}")},
		},
	}
}
