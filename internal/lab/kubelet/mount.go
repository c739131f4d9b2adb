package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// places says where on this machine the mount paths of a container are, the longest path first.
type places []place

type place struct{ mounted, local string }

// tokenMount is where a container finds its ServiceAccount's token. A process is told by KUBECONFIG instead.
const tokenMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// mount makes what the container's volumes hold, below dir, as it is at this moment: later changes of a ConfigMap or Secret do
// not reach a process. An error is what keeps a real container from starting, or a kind of volume that is not played.
func mount(pod *corev1.Pod, c *corev1.Container, dir string, from Sources) (places, error) {
	var out places
	for _, m := range c.VolumeMounts {
		if path.Clean(m.MountPath) == tokenMount {
			continue
		}
		i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			return nil, fmt.Errorf("there is no volume %s", m.Name)
		}
		local, err := volume(pod, &pod.Spec.Volumes[i], filepath.Join(dir, m.Name), from)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", m.Name, err)
		}
		if m.SubPath != "" {
			if !filepath.IsLocal(m.SubPath) {
				return nil, fmt.Errorf("volume %s: subPath %q leaves it", m.Name, m.SubPath)
			}
			local = filepath.Join(local, m.SubPath)
		}
		out = append(out, place{mounted: path.Clean(m.MountPath), local: local})
	}
	slices.SortFunc(out, func(a, b place) int { return len(b.mounted) - len(a.mounted) })
	return out, nil
}

// translate puts the local place where a text names a mounted one: a whole path, or the beginning of one.
func (p places) translate(text string) string {
	const edges = "=:,; \t\n\"'"
	var out strings.Builder
	for i := 0; i < len(text); {
		found := false
		for _, at := range p {
			if !strings.HasPrefix(text[i:], at.mounted) || i > 0 && !strings.ContainsRune(edges, rune(text[i-1])) {
				continue
			}
			rest := text[i+len(at.mounted):]
			if rest != "" && !strings.ContainsRune(edges+"/", rune(rest[0])) {
				continue
			}
			out.WriteString(at.local)
			i += len(at.mounted)
			found = true
			break
		}
		if !found {
			out.WriteByte(text[i])
			i++
		}
	}
	return out.String()
}

// temporary is the place for temporary files: what is mounted there, or else the pod's folder.
func (p places) temporary(dir string) string {
	for _, at := range p {
		if at.mounted == "/tmp" {
			return at.local
		}
	}
	return dir
}

// volume makes one volume's files in dir, and returns where they are.
func volume(pod *corev1.Pod, v *corev1.Volume, dir string, from Sources) (string, error) {
	if v.HostPath != nil {
		return v.HostPath.Path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	files := map[string][]byte{}
	var err error
	switch s := v.VolumeSource; {
	case s.EmptyDir != nil:
	case s.ConfigMap != nil:
		err = configMapFiles(files, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, from)
	case s.Secret != nil:
		err = secretFiles(files, s.Secret.SecretName, s.Secret.Items, s.Secret.Optional, from)
	case s.DownwardAPI != nil:
		err = downwardFiles(files, s.DownwardAPI.Items, pod)
	case s.Projected != nil:
		for i := range s.Projected.Sources {
			if err = projectedFiles(files, &s.Projected.Sources[i], pod, from); err != nil {
				break
			}
		}
	default:
		err = errors.New("this kind of volume is not played for processes")
	}
	if err != nil {
		return "", err
	}
	for name, content := range files { // order: each its own file
		if !filepath.IsLocal(name) {
			return "", fmt.Errorf("path %q leaves the volume", name)
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, content, 0o600); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func projectedFiles(files map[string][]byte, s *corev1.VolumeProjection, pod *corev1.Pod, from Sources) error {
	switch {
	case s.ConfigMap != nil:
		return configMapFiles(files, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, from)
	case s.Secret != nil:
		return secretFiles(files, s.Secret.Name, s.Secret.Items, s.Secret.Optional, from)
	case s.DownwardAPI != nil:
		return downwardFiles(files, s.DownwardAPI.Items, pod)
	}
	return errors.New("this kind of projected source is not played for processes")
}

func configMapFiles(files map[string][]byte, name string, items []corev1.KeyToPath, optional *bool, from Sources) error {
	m, err := read(map[string]*corev1.ConfigMap{}, name, optional, from.ConfigMap)
	if m == nil {
		return err
	}
	content := map[string][]byte{}
	for key, value := range m.Data { // order: into a map
		content[key] = []byte(value)
	}
	maps.Copy(content, m.BinaryData)
	return choose(files, content, items, optional, "ConfigMap", name)
}

func secretFiles(files map[string][]byte, name string, items []corev1.KeyToPath, optional *bool, from Sources) error {
	s, err := read(map[string]*corev1.Secret{}, name, optional, from.Secret)
	if s == nil {
		return err
	}
	return choose(files, s.Data, items, optional, "Secret", name)
}

// choose takes the items that are asked for, or all.
func choose(files, content map[string][]byte, items []corev1.KeyToPath, optional *bool, kind, name string) error {
	if len(items) == 0 {
		maps.Copy(files, content)
		return nil
	}
	for _, item := range items {
		value, ok := content[item.Key]
		if err := missing(ok, optional, kind, name, item.Key); err != nil {
			return err
		}
		if ok {
			files[item.Path] = value
		}
	}
	return nil
}

func downwardFiles(files map[string][]byte, items []corev1.DownwardAPIVolumeFile, pod *corev1.Pod) error {
	e := environmentReader{pod: pod}
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("path %s: only fields are played", item.Path)
		}
		value, err := e.field(item.FieldRef.FieldPath)
		if err != nil {
			return fmt.Errorf("path %s: %w", item.Path, err)
		}
		files[item.Path] = []byte(value)
	}
	return nil
}
