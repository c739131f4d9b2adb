// Package server runs the control plane of a lab: a real etcd, kube-apiserver, kube-controller-manager and, on
// request, kube-scheduler, in one process on loopback, together with the played kubelets and workload operators.
//
// It is the only heavy package of the lab (it links Kubernetes' servers), and only cmd/muster-lab imports it. Tests
// and tools use package lab, which runs that command as a child: the servers keep global state and may call
// os.Exit, so one process can hold one lab, and an end of the lab must not be the end of its user.
//
// Everything a lab writes lies below its folder:
//
//	lab.json     where it is (lab.State)        kubeconfig   administrator's kubeconfig
//	lab.lock     held while it runs             pki/         its certificate authority and keys
//	etcd/        its data                       logs/        servers.log, etcd.log
package server
