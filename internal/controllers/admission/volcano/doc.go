// Package volcano is what admission says of Volcano's kinds: the defaults that Jobs, Queues and PodGroups get, and what is wrong with them, with HyperNodes, JobFlows
// and CronJobs.
//
// All are pure functions of the object and of what is handed in besides; whoever calls them may hand in whatever a user can write. Verdicts and defaults are those of
// Volcano's webhooks, the texts are Muster's: each names the field and the rule. What a schema says, as Volcano's do, is not repeated. What a policy of the API server's can say about
// objects of which nothing else is asked is said there: of pods, and of the tiers of a PodGroup (Options.Policies of package admission).
package volcano
