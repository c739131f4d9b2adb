// Package config resolves Virtlet's settings: what a node's file, its environment, flags and the cluster's VirtletConfigMapping objects say, judged, each
// value with where it is from. It reads no file and asks nobody: that is its callers' part.
//
// The order is Virtlet's: a default gives way to VirtletConfigMapping objects, those to the node's file, that to a flag, and that to the environment. Objects
// count if their nodeName (empty: any) and every label of their nodeSelector are the node's; those of higher priority count over lower ones, and of equal priority
// the one whose name comes later. (Virtlet had no file but one that it wrote itself.)
//
// A scenario. An object for all nodes says rawDevices: "loop*", another, of priority 10 and for nodes with the label disks=nvme, says "nvme*". On such a
// node, and without flag and variable, the value is "nvme*" and its source is "VirtletConfigMapping nvme-nodes".
//
// A value that breaks its key's rule is an error wherever it stands, also where another counts over it: all errors come at once, each with source, key and rule.
// An object for other nodes is not judged.
//
// Some keys have no meaning here. They are known, judged, shown and without effect, and Key.Without says why: docs/ledgers/virtlet.yaml has them all.
package config
