package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
)

// containerdSocket is where containerd answers, in the node.
const containerdSocket = "/run/containerd/containerd.sock"

const (
	// startTime bounds how long a part of the node may take to be there.
	startTime = 2 * time.Minute
	// pause is how long after one look at something that is awaited comes the next.
	pause = 50 * time.Millisecond
)

// run starts the node's programs in their order, and returns when one of them ends or ctx does.
func (o *options) run(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := o.configure(); err != nil {
		return err
	}
	failed := make(chan error, 4+len(o.Services))
	if err := o.service(ctx, failed, "containerd", "containerd", "--config", o.file("containerd.toml")); err != nil {
		return err
	}
	begun := make(chan error, 1)
	go func() { begun <- o.begin(ctx, failed, self) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case err := <-begun:
			if err != nil {
				return err
			}
			fmt.Println("the node's programs run")
		}
	}
}

// begin brings everything up behind containerd.
func (o *options) begin(ctx context.Context, failed chan<- error, self string) error {
	if err := await(ctx, "containerd", func() bool { return exec.CommandContext(ctx, "ctr", "version").Run() == nil }); err != nil {
		return err
	}
	if err := o.loadImages(ctx); err != nil {
		return err
	}
	for _, text := range o.Services {
		name, command, ok := strings.Cut(text, "=")
		if !ok || name == "" || strings.ContainsRune(name, '/') {
			return fmt.Errorf("--service: %q is not of the form NAME=COMMAND", text)
		}
		if err := o.service(ctx, failed, name, "sh", "-c", command); err != nil {
			return err
		}
	}
	if err := await(ctx, o.cri(), func() bool { return answers(o.cri()) }); err != nil {
		return err
	}
	if err := wait.PollUntilContextCancel(ctx, pause, true, func(context.Context) (bool, error) { return exists(o.Kubeconfig), nil }); err != nil {
		return err
	}
	// The groups are those of a node, and of the administrator: there is no Node authorizer in a lab.
	if err := o.kubeconfig("kubelet.kubeconfig", "system:node:"+o.Name, "system:nodes", "system:masters"); err != nil {
		return err
	}
	if err := o.kubeconfig("kube-proxy.kubeconfig", "system:kube-proxy"); err != nil {
		return err
	}
	if err := o.service(ctx, failed, "kubelet", self, "kubelet", "--config="+o.file("kubelet.yaml"), "--kubeconfig="+o.file("kubelet.kubeconfig"),
		"--hostname-override="+o.Name, "--node-ip="+o.address(), "--cert-dir="+o.file("pki")); err != nil {
		return err
	}
	if err := o.service(ctx, failed, "kube-proxy", self, "kube-proxy", "--config="+o.file("kube-proxy.yaml"), "--hostname-override="+o.Name); err != nil {
		return err
	}
	if o.GPUs == 0 {
		return nil
	}
	return offer(ctx, failed, o.Name, o.GPUs)
}

// file is one that the node's programs are configured by.
func (o *options) file(name string) string { return filepath.Join(o.Dir, "etc", name) }

// configure writes what does not depend on the cluster.
func (o *options) configure() error {
	for name, text := range map[string]string{
		"containerd.toml": `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  restrict_oom_score_adj = true # who may not lower a score does not try to
  disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "` + cniPlugins + `"
  conf_dir = "` + o.file("cni") + `"
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia] # by name only: there is no device that it could add
  runtime_type = "io.containerd.runc.v2"
`,
		"cni/pods.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "` + o.pods() + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`,
		"resolv.conf": "nameserver " + o.gateway() + "\n",
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://` + o.cri() + `
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: ` + o.file("ca.crt") + `}}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: ` + o.cgroup() + `
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
clusterDNS: [` + o.gateway() + `] # where nobody answers: a lab has no DNS
clusterDomain: cluster.local
resolvConf: ` + o.file("resolv.conf") + `
volumePluginDir: /var/lib/kubelet/volume-plugins
`,
		"kube-proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: ` + o.file("kube-proxy.kubeconfig") + `}
clusterCIDR: ` + o.pods() + `
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
`,
	} {
		if err := os.MkdirAll(filepath.Dir(o.file(name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(o.file(name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig writes the administrator's for somebody else, and the cluster's authority beside it.
func (o *options) kubeconfig(name, user string, groups ...string) error {
	c, err := clientcmd.LoadFromFile(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("the kubeconfig: %w", err)
	}
	current := c.Contexts[c.CurrentContext]
	if current == nil || c.AuthInfos[current.AuthInfo] == nil || c.Clusters[current.Cluster] == nil {
		return fmt.Errorf("the kubeconfig %s has no current context that is complete", o.Kubeconfig)
	}
	as := c.AuthInfos[current.AuthInfo]
	as.Impersonate, as.ImpersonateGroups = user, groups
	if err := os.WriteFile(o.file("ca.crt"), c.Clusters[current.Cluster].CertificateAuthorityData, 0o600); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*c, o.file(name))
}

// loadImages makes the images that need nothing but busybox, and loads them and those that were asked for.
func (o *options) loadImages(ctx context.Context) error {
	archive := o.file("busybox.tar")
	if err := writeBusybox(archive); err != nil {
		return fmt.Errorf("make the images of busybox: %w", err)
	}
	if err := ctr(ctx, "images", "import", archive); err != nil {
		return err
	}
	for _, text := range o.Images {
		name, file, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("--image: %q is not of the form NAME=FILE", text)
		}
		if err := ctr(ctx, "images", "import", "--index-name", name, file); err != nil {
			return err
		}
	}
	return nil
}

// ctr asks containerd for something in the namespace that the kubelet's containers live in.
func ctr(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	fmt.Printf("ctr %s\n%s", strings.Join(args, " "), out)
	return nil
}

// await waits until something is there.
func await(ctx context.Context, what string, there func() bool) error {
	err := wait.PollUntilContextTimeout(ctx, pause, startTime, true, func(context.Context) (bool, error) { return there(), nil })
	if err != nil {
		return fmt.Errorf("wait for %s: %w", what, err)
	}
	return nil
}

// answers says whether somebody listens at a socket.
func answers(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// exists says whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
