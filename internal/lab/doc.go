// Package lab starts and drives labs: real Kubernetes control planes on this machine, with simulated GPU nodes.
//
// It answers the needs of an end-to-end test: a cluster in seconds (Start), its nodes (Lab.AddNodes, RemoveNodes,
// FailNode, RestoreNode), what its kubelets had to turn away (Lab.Rejected), and a Proxy that acts at an exact
// response. It knows nothing of Muster: whatever CRDs a test wants it hands in.
//
// A lab is a process of its own, the command muster-lab; this package links none of Kubernetes' servers, so a test
// binary stays small. Start builds that command if need be (see Options.Binary). A lab ends with Stop, with the
// context of Start, or with the process that started it, whichever comes first, and leaves nothing behind.
//
//	your test ──► lab.Start ──► muster-lab up (child)
//	                              ├─ etcd, kube-apiserver, kube-controller-manager, [kube-scheduler]
//	                              ├─ lab/kubelet   plays the kubelets of nodes labelled muster.lab/pool
//	                              │                and runs the containers of chosen images for real (Options.Programs)
//	                              ├─ a proxy by which the API server reaches those (ProcessAddress): webhooks by Service,
//	                              │  kubectl get --raw …/services/NAME:PORT/proxy/…
//	                              └─ lab/operator  plays PyTorchJob's operator and its like
//
// What the lab plays is asked for in objects, so that kubectl can ask too: the labels and annotations of this
// package's constants. Permissions are real (RBAC); the kubeconfig is that of an administrator.
package lab
