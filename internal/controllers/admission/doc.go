// Package admission is the role that looks at objects before they exist, and what the API server is told of it.
//
// It answers two questions about a pod that is ours: is what it asks of the GPUs something that can be given (Rules.Validate,
// Rules.ValidateUpdate), and what must be added to it so that its devices find the right container (Rules.Mutate). Of Queues
// and PodGroups it answers whether they make sense among the others that there are (Rules.ValidateQueue, KeepQueue,
// ValidatePodGroup), of SchedulingShards what a scheduler would say (ShardCheck). All are pure functions of their arguments;
// whoever calls them may hand in whatever a user can write.
//
// What the API server can judge by itself it does: rules about single fields are in the schemas of our custom resources, and what
// one object and its author tell is in policies (Options.Policies): who may say what only Muster may say, and who may use a queue.
// The handler for Topologies repeats two rules of the schema, for clusters in which the schema is KAI's.
//
// Options.Objects is all of that as objects, for whoever installs Muster; Options.Webhooks has the API server ask only about pods of our
// schedulers: should this process be dead, only those cannot be created.
//
// Around the handler a Controller serves KAI's paths over HTTPS, with a certificate that it makes and renews by itself, keeps in
// one Secret, and announces in the webhook configurations that it owns by name, and in no other object.
//
// Nothing is remembered: a crash at any moment leaves a Secret and configurations that the next start reads and, if need be,
// completes.
package admission
