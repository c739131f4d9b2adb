// Package kubebatch says whether a cluster can change over from kube-batch to Muster now: whether a kube-batch runs, or holds its lock, whether its kinds are served, and whether its scheduler file is
// one that Muster takes. It reads, and writes nothing. What kube-batch keeps its lock in, an annotation of a ConfigMap or an Endpoints object, supported clients no longer write; it can still be read.
package kubebatch
