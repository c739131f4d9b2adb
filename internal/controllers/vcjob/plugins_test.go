package vcjob

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew; a person compares them with Volcano's interface")

// framework is a Job of a master (or head, or ps), and two workers.
func framework(first string, plugins map[string][]string) *batch.Job {
	return job(func(j *batch.Job) {
		j.UID = types.UID("11111111-2222-4333-8444-555555555555")
		j.Spec.Plugins = plugins
		j.Spec.Tasks[0].Name, j.Spec.Tasks[1].Name = first, "worker"
		for i := range j.Spec.Tasks {
			t := &j.Spec.Tasks[i]
			t.Template = template()
			t.Template.Spec.Containers[0].Name = t.Name
			t.Template.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "busybox"}}
		}
	})
}

// golden are what a Job's plugins make: the objects, and the Job's pods.
type golden struct {
	Objects []any        `json:"objects"`
	Pods    []corev1.Pod `json:"pods"`
}

// TestPluginsAreGolden: each plugin's objects and pods, byte for byte.
func TestPluginsAreGolden(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first   string
		plugins map[string][]string
	}{
		"env":                 {"master", map[string][]string{"env": nil}},
		"svc":                 {"parameter-server", map[string][]string{"svc": nil}},
		"svc-arguments":       {"master", map[string][]string{"svc": {"--publish-not-ready-addresses=true", "--disable-network-policy=true", "--inject-hosts-env=false"}}},
		"ssh":                 {"master", map[string][]string{"ssh": nil}},
		"ssh-arguments":       {"master", map[string][]string{"ssh": {"--ssh-key-file-path=/keys/.ssh", "--ssh-private-key=mine", "--ssh-public-key=ours", "--ssh-port=2022"}}},
		"tensorflow":          {"ps", map[string][]string{"tensorflow": nil, "svc": {"--inject-hosts-env=false", "--disable-network-policy"}}},
		"pytorch":             {"master", map[string][]string{"pytorch": nil}},
		"pytorch-arguments":   {"boss", map[string][]string{"pytorch": {"--master=boss", "--port=1234", "--wait-master-enabled=true", "--wait-master-timeout=60", "--wait-master-image=box"}}},
		"mpi":                 {"master", map[string][]string{"mpi": nil}},
		"hcclrank":            {"master", map[string][]string{"hcclrank": nil}},
		"hcclrank-of-pytorch": {"master", map[string][]string{"hcclrank": nil, "pytorch": nil}},
		"ray":                 {"head", map[string][]string{"ray": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := framework(c.first, c.plugins)
			ps, err := pluginsOf(j)
			if err != nil {
				t.Fatal(err)
			}
			var g golden
			for _, p := range ps.list {
				for _, o := range p.objects() {
					g.Objects = append(g.Objects, o.Object)
				}
			}
			for i := range j.Spec.Tasks {
				for n := range int(j.Spec.Tasks[i].Replicas) {
					pod := podOf(j, &j.Spec.Tasks[i], n, ps, "j-group", rules{})
					pod.OwnerReferences, pod.Labels = nil, nil
					for key := range pod.Annotations { // order: what is deleted does not depend on it
						if strings.Contains(key, "volcano.sh/") || strings.Contains(key, "k8s.io/") {
							delete(pod.Annotations, key)
						}
					}
					g.Pods = append(g.Pods, *pod)
				}
			}
			got, err := yaml.Marshal(g)
			if err != nil {
				t.Fatal(err)
			}
			got = bytes.ReplaceAll(got, []byte(sshHome), []byte("HOME")) // what it is, TestPodsAreVolcanos compares
			file := filepath.Join("testdata", "plugins", name+".yaml")
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), string(got)); d != "" {
				t.Errorf("(-golden +got):\n%s", d)
			}
		})
	}
}

// TestVariables types from Volcano's interface what the golden files must say.
func TestVariables(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plugin, first string
		args          []string
		task, index   int
		want          map[string]string // of the main container; an absent one is -
	}{
		{"env", "master", nil, 1, 1, map[string]string{"VK_TASK_INDEX": "1", "VC_TASK_INDEX": "1"}},
		{"tensorflow", "ps", nil, 0, 0, map[string]string{
			"TF_CONFIG": `{"cluster":{"ps":["j-ps-0.j:2222"],"worker":["j-worker-0.j:2222","j-worker-1.j:2222"]},"task":{"type":"ps","index":0}}`,
		}},
		{"tensorflow", "boss", []string{"--chief=boss", "--port=1"}, 1, 1, map[string]string{
			"TF_CONFIG": `{"cluster":{"worker":["j-worker-0.j:1","j-worker-1.j:1"],"chief":["j-boss-0.j:1"]},"task":{"type":"worker","index":1}}`,
		}},
		{"tensorflow", "other", nil, 0, 0, map[string]string{"TF_CONFIG": "-"}},
		{"pytorch", "master", nil, 0, 0, map[string]string{"MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": "0"}},
		{"pytorch", "master", nil, 1, 1, map[string]string{"MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "23456", "WORLD_SIZE": "3", "RANK": "2"}},
		{"pytorch", "none", nil, 1, 0, map[string]string{"MASTER_ADDR": "-", "RANK": "-"}},
		{"mpi", "master", nil, 0, 0, map[string]string{"MPI_HOST": "j-worker-0.j,j-worker-1.j"}},
		{"mpi", "master", nil, 1, 0, map[string]string{"MPI_HOST": "-"}},
	} {
		j := framework(c.first, map[string][]string{c.plugin: c.args})
		ps, err := pluginsOf(j)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, v := range podOf(j, &j.Spec.Tasks[c.task], c.index, ps, "g", rules{}).Spec.Containers[0].Env {
			got[v.Name] = v.Value
		}
		for name, want := range c.want { // order: each for itself
			if got[name] != want && !(want == "-" && got[name] == "") {
				t.Errorf("%s of %s pod %d: %s is %q, want %q", c.plugin, j.Spec.Tasks[c.task].Name, c.index, name, got[name], want)
			}
		}
	}
}

// TestLonelyTensorFlow: one task with one pod has nobody to be told of.
func TestLonelyTensorFlow(t *testing.T) {
	t.Parallel()
	j := framework("worker", map[string][]string{"tensorflow": nil})
	j.Spec.Tasks = j.Spec.Tasks[:1]
	ps, err := pluginsOf(j)
	if err != nil {
		t.Fatal(err)
	}
	if e := podOf(j, &j.Spec.Tasks[0], 0, ps, "g", rules{}).Spec.Containers[0].Env; len(e) != 0 {
		t.Errorf("it is told %v", e)
	}
}

// TestWrongPlugins: what is wrong with a plugin is said with its name.
func TestWrongPlugins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plugins map[string][]string
		want    string
	}{
		{map[string][]string{"nobody": nil}, "spec.plugins[nobody]: there is no such plugin"},
		{map[string][]string{"svc": {"--what"}}, "spec.plugins[svc]: arguments"},
		{map[string][]string{"mpi": {"--port=many"}}, "spec.plugins[mpi]: arguments"},
		{map[string][]string{"ray": {"--head=none"}}, "spec.plugins[ray]: there is no task none"},
	} {
		if _, err := pluginsOf(framework("head", c.plugins)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.plugins, err, c.want)
		}
	}
}

// TestHostname: a template that names its pods has one host, and its own domain.
func TestHostname(t *testing.T) {
	t.Parallel()
	j := framework("master", nil)
	j.Spec.Tasks[1].Template.Spec.Hostname, j.Spec.Tasks[1].Template.Spec.Subdomain = "h", "d"
	if d := cmp.Diff([]string{"h.d"}, addresses(j, &j.Spec.Tasks[1])); d != "" {
		t.Error(d)
	}
}

// TestKeys: a new pair is RSA with 2,048 bits, and the public line carries the private key's modulus.
func TestKeys(t *testing.T) {
	t.Parallel()
	private, public, err := NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	if block == nil || block.Type != "RSA PRIVATE KEY" {
		t.Fatalf("no PEM: %s", private)
	}
	k, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil || k.N.BitLen() != 2048 {
		t.Fatalf("%v", err)
	}
	fields := strings.Fields(string(public))
	if len(fields) != 2 || fields[0] != "ssh-rsa" || !strings.HasSuffix(fields[1], lastBase64(k.N.Bytes())) {
		t.Errorf("public key %s", public)
	}
}

// lastBase64 is how the text of what ends with these bytes ends. The 279 bytes of such a key are a multiple of three.
func lastBase64(b []byte) string { return base64.StdEncoding.EncodeToString(b[len(b)-30:]) }
