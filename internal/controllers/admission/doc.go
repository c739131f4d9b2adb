// Package admission is the role that looks at pods, and Topologies, before they exist.
//
// It answers two questions about a pod that is ours: is what it asks of the GPUs something that can be given (Rules.Validate,
// Rules.ValidateUpdate), and what must be added to it so that its devices find the right container (Rules.Mutate). All three
// are pure functions of the object; whoever calls them may hand in whatever a user can write.
//
// Around them a Controller serves KAI's paths over HTTPS, with a certificate that it makes and renews by itself, keeps in one
// Secret, and announces in the two webhook configurations that it owns by name, and in no other object. The configurations
// (Webhooks) have the API server ask only about pods of our schedulers: should this process be dead, only those cannot be
// created.
//
// It refuses to judge what the API server can judge by itself: the rules of our custom resources are in their schemas. The
// handler for Topologies repeats two of them, for clusters in which the schema is KAI's.
//
// Nothing is remembered: a crash at any moment leaves a Secret and configurations that the next start reads and, if need be,
// completes.
package admission
