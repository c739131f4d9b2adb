package vcjob

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"flag"
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
)

// sshPort is where servers listen.
const sshPort = 22

// sshHome is the folder of keys of a container's root.
var sshHome = path.Join("/root", ".ssh")

// ssh lets a Job's pods log in to each other.
type ssh struct {
	job                     *batch.Job
	folder, private, public string
	port                    int
}

func newSSH(j *batch.Job, args []string) (plugin, error) {
	s := &ssh{job: j}
	err := flags(args, func(f *flag.FlagSet) {
		f.StringVar(&s.folder, "ssh-key-file-path", sshHome, "")
		f.StringVar(&s.private, "ssh-private-key", "", "")
		f.StringVar(&s.public, "ssh-public-key", "", "")
		f.IntVar(&s.port, "ssh-port", sshPort, "")
	})
	if s.port <= 0 || s.port > 65535 {
		s.port = sshPort
	}
	return s, err
}

func (s *ssh) onPod(p *corev1.Pod, _ *batch.TaskSpec, _ int) {
	name := s.job.Name + "-ssh"
	mode := int32(0o600)
	if s.folder != sshHome {
		mode = 0o644
	}
	var items []corev1.KeyToPath
	for _, file := range []string{"id_rsa", "id_rsa.pub", "authorized_keys", "config"} {
		items = append(items, corev1.KeyToPath{Key: file, Path: ".ssh/" + file})
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: name, Items: items, DefaultMode: &mode},
	}})
	for _, c := range containers(p, true) {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: s.folder, SubPath: ".ssh"})
	}
}

// config is the client's configuration file.
func (s *ssh) config() string {
	var b strings.Builder
	b.WriteString("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
	for i := range s.job.Spec.Tasks {
		t := &s.job.Spec.Tasks[i]
		for n := range int(t.Replicas) {
			name, domain := host(s.job, t, n)
			fmt.Fprintf(&b, "Host %s\n  HostName %s.%s\n  Port %d\n", name, name, domain, s.port)
			if t.Template.Spec.Hostname != "" {
				break
			}
		}
	}
	return b.String()
}

func (s *ssh) objects() []object {
	data := map[string][]byte{"config": []byte(s.config())}
	if s.private != "" && s.public != "" {
		data["id_rsa"], data["id_rsa.pub"], data["authorized_keys"] = []byte(s.private), []byte(s.public), []byte(s.public)
	}
	return []object{{keys: data["id_rsa"] == nil, Object: &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.job.Namespace, Name: s.job.Name + "-ssh", OwnerReferences: ownedBy(s.job)}, Data: data,
	}}}
}

// NewKeys makes a pair of RSA keys of 2,048 bits: the private one in PEM, the public one as a line of authorized_keys. It takes a tenth of a
// second or several.
func NewKeys() (private, public []byte, err error) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, nil, fmt.Errorf("make a pair of RSA keys: %w", err)
	}
	private = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(k)})
	e := []byte{byte(k.E >> 16), byte(k.E >> 8), byte(k.E)} // 65537
	n := append([]byte{0}, k.N.Bytes()...)                  // its first bit is set, and it is no negative number
	var blob []byte
	for _, part := range [][]byte{[]byte("ssh-rsa"), e, n} { // RFC 4253, 6.6
		blob = append(binary.BigEndian.AppendUint32(blob, uint32(len(part))), part...) //nolint:gosec // some hundred bytes
	}
	return private, []byte("ssh-rsa " + base64.StdEncoding.EncodeToString(blob) + "\n"), nil
}
