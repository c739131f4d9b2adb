package kubelet

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"

	"github.com/muster-scheduler/muster/internal/lab"
)

// Sources are where a kubelet finds what a pod's environment refers to, in the pod's namespace. A function fails with
// the API server's NotFound when there is no such object.
type Sources struct {
	ConfigMap func(name string) (*corev1.ConfigMap, error)
	Secret    func(name string) (*corev1.Secret, error)
}

// SourcesOf reads a namespace's ConfigMaps and Secrets from the API server, each when it is asked for.
func SourcesOf(ctx context.Context, client kubernetes.Interface, namespace string) Sources {
	return Sources{
		ConfigMap: func(name string) (*corev1.ConfigMap, error) {
			return client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Secret: func(name string) (*corev1.Secret, error) {
			return client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		},
	}
}

// Environment returns the variables that a kubelet sets for a container, which may be an init container, before the image
// adds its own. Its rules are those of Kubernetes: what envFrom brings comes first, a later source over an earlier one;
// then env, in order, each over what was there; $(NAME) stands for what was known before; what is optional and missing
// leaves what was there. An error is what keeps a real container from starting (CreateContainerConfigError).
//
// Service links are left out, because nothing of the lab is reached by them. References to files of a volume are errors:
// nobody in the lab asks for them.
func Environment(pod *corev1.Pod, container *corev1.Container, from Sources) (map[string]string, error) {
	e := environmentReader{pod: pod, container: container, from: from, vars: map[string]string{}, maps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}}
	for i := range container.EnvFrom {
		if err := e.all(&container.EnvFrom[i]); err != nil {
			return nil, fmt.Errorf("container %s: envFrom[%d]: %w", container.Name, i, err)
		}
	}
	for i := range container.Env {
		v := &container.Env[i]
		value, ok, err := e.value(v)
		if err != nil {
			return nil, fmt.Errorf("container %s: env %s: %w", container.Name, v.Name, err)
		}
		if ok {
			e.vars[v.Name] = value
		}
	}
	return e.vars, nil
}

// environmentReader is one in the making.
type environmentReader struct {
	pod       *corev1.Pod
	container *corev1.Container
	from      Sources
	vars      map[string]string
	maps      map[string]*corev1.ConfigMap // read before: one container sees one state of each
	secrets   map[string]*corev1.Secret
}

// all takes every key of an object.
func (e *environmentReader) all(s *corev1.EnvFromSource) error {
	switch {
	case s.ConfigMapRef != nil:
		m, err := e.configMap(s.ConfigMapRef.Name, s.ConfigMapRef.Optional)
		if m == nil {
			return err
		}
		for key, value := range m.Data {
			e.vars[s.Prefix+key] = value
		}
	case s.SecretRef != nil:
		secret, err := e.secret(s.SecretRef.Name, s.SecretRef.Optional)
		if secret == nil {
			return err
		}
		for key, value := range secret.Data {
			e.vars[s.Prefix+key] = string(value)
		}
	}
	return nil
}

// value is what a variable becomes; false if it is optional and missing.
func (e *environmentReader) value(v *corev1.EnvVar) (string, bool, error) {
	if v.Value != "" || v.ValueFrom == nil {
		return expansion.Expand(v.Value, expansion.MappingFuncFor(e.vars)), true, nil
	}
	switch from := v.ValueFrom; {
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		m, err := e.configMap(ref.Name, ref.Optional)
		if m == nil {
			return "", false, err
		}
		value, ok := m.Data[ref.Key]
		return value, ok, missing(ok, ref.Optional, "ConfigMap", ref.Name, ref.Key)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := e.secret(ref.Name, ref.Optional)
		if secret == nil {
			return "", false, err
		}
		value, ok := secret.Data[ref.Key]
		return string(value), ok, missing(ok, ref.Optional, "Secret", ref.Name, ref.Key)
	case from.FieldRef != nil:
		value, err := e.field(from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		value, err := e.resource(from.ResourceFieldRef)
		return value, err == nil, err
	}
	return "", false, fmt.Errorf("this source of a value is not played")
}

func missing(found bool, optional *bool, kind, name, key string) error {
	if found || optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %s has no key %s", kind, name, key)
}

// resource is what a container may use. Without a limit that is what the node has, which here nobody sizes itself by: 0.
func (e *environmentReader) resource(ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName == "" || ref.ContainerName == e.container.Name {
		return resource.ExtractContainerResourceValue(ref, e.container)
	}
	return resource.ExtractResourceValueByContainerName(ref, e.pod, ref.ContainerName)
}

// field is a field of the pod.
func (e *environmentReader) field(path string) (string, error) {
	switch path {
	case "spec.nodeName":
		return e.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return e.pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return "127.0.0.1", nil
	case "status.podIP", "status.podIPs":
		return lab.PodIP(e.pod.UID), nil
	}
	return fieldpath.ExtractFieldPathAsString(e.pod, path)
}

func (e *environmentReader) configMap(name string, optional *bool) (*corev1.ConfigMap, error) {
	return read(e.maps, name, optional, e.from.ConfigMap)
}

func (e *environmentReader) secret(name string, optional *bool) (*corev1.Secret, error) {
	return read(e.secrets, name, optional, e.from.Secret)
}

// read looks an object up once. It is nil, without an error, when it is optional and missing.
func read[T any](known map[string]*T, name string, optional *bool, get func(string) (*T, error)) (*T, error) {
	if o := known[name]; o != nil {
		return o, nil
	}
	o, err := get(name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	known[name] = o
	return o, nil
}
