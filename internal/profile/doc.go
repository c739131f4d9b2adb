// Package profile resolves KAI's configuration (its scheduler configuration file, and what a SchedulingShard asks for)
// into an engine profile. It answers "which actions and plugins, in which order, with which arguments"; it refuses
// malformed input with an error that names the key and the rule.
//
//	SchedulingShard ──Of──► Shard ──ForShard──► engine.Profile ◄──Parse── configuration file
//	                          └──────────────File──────────────────────────────┘
//
// The operator renders a shard's configuration file with File; its scheduler reads it with Parse and Usage. Both ways lead
// to the same profile, which a test holds for random shards. What a shard says besides (flags, memory, its partition) is no
// part of a profile: the operator makes arguments and environment of it.
package profile
