// Package operator is the role that installs Muster and keeps it installed. It answers one question, over and over: does the
// cluster hold what the Config kai-config and the SchedulingShards ask for (package install), and if not, what has to be
// applied, and what removed?
//
//	Config, shards, Environment ──► install.Render ──► desired ─┐
//	objects with our label (informers) ──────────────► live ────┴─► plan: apply, remove ──► server-side apply ──► conditions
//
// It writes by server-side apply as the manager of fields muster-operator, and only objects that differ from what is asked for,
// so that a cluster at rest sees no write and nothing it does wakes it up again. Fields that nobody asked for stay as they
// are: who adds labels, annotations or sidecars keeps them. It never writes a spec of its users: a Config under GitOps has no
// drift.
//
// It removes only what it owns: an object with its label whose controller is the Config kai-config. What others made, or what
// running gangs depend on (install.Kept), it leaves. That every object is owned by the Config makes uninstalling the garbage
// collector's work: delete the Config, and what it asked for goes, while pods that were placed run on.
//
// A shard that cannot run is told so in its conditions; its scheduler, if it has one from better days, goes on as it was, and
// so do all others.
//
// Nothing is remembered between two looks but the namespaces that were used and whether an external Prometheus answered; a
// crash at any point is followed by a look that starts over.
package operator
