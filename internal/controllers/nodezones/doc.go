// Package nodezones runs on every node with several NUMA zones: it asks the kubelet which CPUs, memory and devices each
// pod was given, and writes by zone what that comes to into the pod's annotation, where the scheduler reads what is
// really free in each zone.
//
// The kubelet is asked over its podresources socket, at every interval; only what changed is written. From time to time
// the annotations themselves are read back, and what others changed is put right. An annotation is never removed: it
// goes with its pod.
package nodezones
