// Package kubelet plays the kubelets of simulated nodes against a real API server.
//
// It answers one question: what becomes of a pod once it is bound? A pod bound to a played node (one that carries
// lab.LabelPool) is admitted or rejected as a kubelet would, goes Running, ends as its annotations say, and honours
// deletion and grace. It never schedules or creates pods. What a container would do is played, but for images that there
// are Programs for: those run, as processes of this machine, with the environment (Environment), the ServiceAccount, the
// files of the volumes, the address and the devices that a kubelet would give them. Their probes drive the pod's conditions
// and restarts; they are ended by SIGTERM and a grace. Not played for them: init containers, life-cycle hooks, limits, and
// changes of a ConfigMap or Secret that is mounted.
//
// One informer of bound pods and one of nodes feed a ledger of room per node; workers write. The room of a pod is
// taken when it is admitted and given back before the API server can tell anyone that it is free, so a rejection
// always means that somebody bound a pod where there was no room: tests use that to detect overcommitment.
//
//	bound ──► admitted ──► Running ──► Succeeded | Failed
//	   └────► Failed (OutOf…)   └─ deleted ─ grace ─► Failed, gone
package kubelet
