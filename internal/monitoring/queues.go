package monitoring

// perQueue is a metric by queue name: whoever exports it, however many replicas there are, and whatever else labels it.
func perQueue(metric string) string {
	return `max by (queue_name) (` + metric + `{queue_name=~"$queue"})`
}

// starved is how many GPUs a queue lacks of what is both its fair share and asked for.
func starved(queues string) string {
	of := func(metric string) string { return `max by (queue_name) (` + metric + queues + `)` }
	asked := of("muster_queue_requested_gpus")
	return `clamp_min(((` + of("kai_queue_fair_share_gpu") + ` < ` + asked + `) or ` + asked + `) - ` + of("kai_queue_allocated_gpus") + `, 0)`
}

// queues answers: does each team have what it is entitled to, and who waits?
func queues() Dashboard {
	mine := `{queue_name=~"$queue"}`
	return Dashboard{
		Name: "queues", Title: "Muster / Queues", ByQueue: true,
		Help: "Does every queue have what it is entitled to, and who waits? A queue's numbers include those of the queues below it.",
		Panels: []Panel{
			{Title: "Queues", Help: "Queues that exist.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`count(`+perQueue("kai_queue_info")+`)`, "queues")},
			{Title: "Gangs waiting", Help: "Gangs that wait for room, in all chosen queues.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`sum(`+perQueue("muster_queue_waiting_gangs")+`)`, "gangs")},
			{Title: "Queues starving", Help: "Queues that hold less than their fair share although they ask for more. It should pass within minutes: reclaim takes the share back.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`count(`+starved(mine)+` > 0) or count(`+starved(mine)+`) * 0`, "queues")},
			{Title: "GPUs starved", Help: "GPUs that starving queues lack, the largest of them.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`max(`+starved(mine)+`)`, "GPUs")},
			{Title: "GPUs free", Help: "GPUs that are free on nodes that take pods, free parts of shared ones included.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`sum(muster_gpus_free)`, "GPUs")},
			{Title: "Free, but unusable", Help: "The part of the free GPUs that the next pod could not use, on average over the work there is: fragmentation.", Kind: Stat, Unit: Number, Width: 4, Height: 4, Queries: one(`sum(muster_gpus_unusable)`, "GPUs")},

			{Title: "GPUs allocated", Help: "What each queue holds.", Kind: Lines, Unit: Number, Width: 12, Height: 8, Queries: one(perQueue("kai_queue_allocated_gpus"), "{{queue_name}}")},
			{Title: "GPUs requested", Help: "What each queue's work asks for, what it holds included. Above allocated, somebody waits.", Kind: Lines, Unit: Number, Width: 12, Height: 8, Queries: one(perQueue("muster_queue_requested_gpus"), "{{queue_name}}")},
			{Title: "Fair share of GPUs", Help: "What each queue is entitled to now, by quota, weight and history, and by what others ask for.", Kind: Lines, Unit: Number, Width: 12, Height: 8, Queries: one(perQueue("kai_queue_fair_share_gpu"), "{{queue_name}}")},
			{Title: "Starving: GPUs short of share and request", Help: "Each queue's distance from what is both its fair share and asked for. A line that stays up is work for an operator: see why with muster explain.", Kind: Lines, Unit: Number, Width: 12, Height: 8, Queries: one(starved(mine), "{{queue_name}}")},
			{Title: "Usage over time", Help: "The part of the cluster's GPUs that each queue used lately, decayed. Only with time-based shares.", Kind: Lines, Unit: Ratio, Width: 12, Height: 8, Queries: one(perQueue("kai_queue_gpu_usage"), "{{queue_name}}")},
			{Title: "Gangs waiting, by queue", Help: "Gangs of queues that do not exist are counted together, under an empty name.", Kind: Lines, Unit: Number, Width: 12, Height: 8, Queries: one(`max by (queue_name) (muster_queue_waiting_gangs)`, "{{queue_name}}")},

			{Title: "CPU cores allocated", Help: "What each queue holds.", Kind: Lines, Unit: Number, Width: 8, Height: 7, Queries: one(perQueue("kai_queue_allocated_cpu_cores"), "{{queue_name}}")},
			{Title: "Memory allocated", Help: "What each queue holds.", Kind: Lines, Unit: Bytes, Width: 8, Height: 7, Queries: one(perQueue("kai_queue_allocated_memory_bytes"), "{{queue_name}}")},
			{Title: "Allocated, of fair share", Help: "1 is exactly the share; above it lies what is borrowed and can be taken back.", Kind: Bars, Unit: Ratio, Width: 8, Height: 7, Queries: one(perQueue("kai_queue_allocated_gpus")+` / (`+perQueue("kai_queue_fair_share_gpu")+` > 0)`, "{{queue_name}}")},

			{Title: "GPUs now", Help: "Quota -1 is without bound.", Kind: Table, Unit: Number, Width: 24, Height: 8, By: "queue_name", Queries: []Query{
				{perQueue("kai_queue_deserved_gpus"), "quota"},
				{perQueue("kai_queue_fair_share_gpu"), "fair share"},
				{perQueue("muster_queue_requested_gpus"), "requested"},
				{perQueue("kai_queue_allocated_gpus"), "allocated"},
				{starved(mine), "starved of"},
				{perQueue("muster_queue_waiting_gangs"), "gangs waiting"},
			}},
		},
	}
}
