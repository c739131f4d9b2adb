package monitoring

// pipeline answers: does what is decided happen? It is about the roles before and behind the scheduler, and the API server.
func pipeline() Dashboard {
	rate := func(by, selector string) string {
		return `sum by (` + by + `) (rate(` + selector + `[$__rate_interval]))`
	}
	return Dashboard{
		Name: "pipeline", Title: "Muster / Pipeline",
		Help: "Does work become gangs, and do decisions become running pods? The roles around the scheduler, and the API server.",
		Panels: []Panel{
			{Title: "Leases led", Help: "Leases that a process holds. Less than there are roles and shards: one of them stands still.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`sum(leader_election_master_status)`, "Leases")},
			{Title: "BindRequests pending", Help: "Decisions that are not carried out yet.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`sum(muster_bindrequests{phase="Pending"})`, "pending")},
			{Title: "Bind delay, 99 %", Help: "From a BindRequest to its pod's Binding.", Kind: Stat, Unit: Seconds, Width: 4, Height: 4, Queries: one(`histogram_quantile(0.99, sum by (le) (rate(muster_binder_bind_delay_seconds_bucket[15m])))`, "delay")},
			{Title: "Failed attempts to bind", Help: "Per second, over 15 minutes.", Kind: Stat, Unit: PerSecond, Width: 4, Height: 4, Queries: one(`sum(rate(muster_binder_actions_total{action=~"prepare|bind",outcome="failure"}[15m]))`, "failures")},
			{Title: "Events dropped", Help: "Events that were not written because too many waited. They only repeat what conditions say.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Calm: true, Queries: one(`sum(muster_events_dropped_total)`, "events")},
			{Title: "API errors", Help: "The part of all requests that were answered 429 or 5xx, or not at all, over 15 minutes.", Kind: Stat, Unit: Ratio, Width: 4, Height: 4, Calm: true, Queries: one(`(sum(rate(rest_client_requests_total{code=~"429|5..|<error>"}[15m])) or vector(0)) / sum(rate(rest_client_requests_total[15m]))`, "errors")},

			{Title: "PodGroups created", Help: "Workloads that became gangs.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(`sum(rate(muster_podgrouper_creates_total[$__rate_interval]))`, "created")},
			{Title: "Owners read", Help: "From watches, or one by one. Many requests: a kind of owner cannot be watched.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(rate("source", "muster_podgrouper_owner_reads_total"), "{{source}}")},
			{Title: "Workloads that could not be grouped as written", Help: "Warnings to their owners.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Calm: true, Queries: one(`sum(rate(muster_podgrouper_warnings_total[$__rate_interval]))`, "warnings")},

			{Title: "BindRequests", Help: "By phase. Succeeded ones stay as long as their pods; Pending ones should not stay, and Failed ones are decided anew.", Kind: Lines, Unit: Number, Width: 12, Height: 8, Queries: one(`sum by (phase) (muster_bindrequests)`, "{{phase}}")},
			{Title: "Bind delay", Help: "From a BindRequest to its pod's Binding: the whole gang is prepared first.", Kind: Lines, Unit: Seconds, Width: 12, Height: 8, Queries: quantiles("muster_binder_bind_delay_seconds")},
			{Title: "Binder: done", Help: "Actions carried out.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(rate("action", `muster_binder_actions_total{outcome="done"}`), "{{action}}")},
			{Title: "Binder: failed attempts", Help: "Attempts that say something about the request: a volume that cannot be made, a node that is gone. They are undone and tried again, and given up after the request's limit.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(rate("action", `muster_binder_actions_total{outcome="failure"}`), "{{action}}")},
			{Title: "Binder: retries after faults", Help: "Actions repeated because of something that is not the request's fault: the API server was slow or refused.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Calm: true, Queries: one(rate("action", `muster_binder_actions_total{outcome="fault"}`), "{{action}}")},

			{Title: "From decision to BindRequest", Help: "What writing a decision costs. (KAI's metric.)", Kind: Lines, Unit: Milliseconds, Width: 8, Height: 8, Queries: quantiles("kai_task_bind_latency_milliseconds")},
			{Title: "Writes, by role", Help: "Patches and evictions taken by the API server.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(rate("role", `muster_writes_total{result="written"}`), "{{role}}")},
			{Title: "Writes not taken", Help: "The object was gone or had changed (the next event tells the rest), a PodDisruptionBudget allows no eviction, or an error: muster_writes_total has the result.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Calm: true, Queries: one(`clamp_min(`+rate("role", "muster_writes_total")+` - `+rate("role", `muster_writes_total{result=~"written|unchanged"}`)+`, 0)`, "{{role}}")},

			{Title: "API requests, by code", Help: "All requests to the API server; <error> is no answer. 404 and 409 are part of the work.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(rate("code", "rest_client_requests_total"), "{{code}}")},
			{Title: "API requests, by method", Help: "What the load on the API server is made of.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(rate("method", "rest_client_requests_total"), "{{method}}")},
			{Title: "API answers, 99 %", Help: "Time until the API server began to answer.", Kind: Lines, Unit: Seconds, Width: 8, Height: 8, Queries: one(`histogram_quantile(0.99, sum by (verb, le) (rate(rest_client_request_duration_seconds_bucket[$__rate_interval])))`, "{{verb}}")},

			{Title: "Admission reviews", Help: "Answers to the API server, by result.", Kind: Lines, Unit: PerSecond, Width: 8, Height: 8, Queries: one(rate("result", "muster_admission_reviews_total"), "{{result}}")},
			{Title: "Admission time", Help: "Every pod of ours waits for it.", Kind: Lines, Unit: Seconds, Width: 8, Height: 8, Queries: quantiles("muster_admission_review_seconds")},
			{Title: "Leases", Help: "1: somebody leads.", Kind: Bars, Unit: Number, Width: 8, Height: 8, Queries: one(`max by (name) (leader_election_master_status)`, "{{name}}")},
		},
	}
}
