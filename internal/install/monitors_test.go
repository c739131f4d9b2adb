package install

import (
	"encoding/json"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// TestEveryRoleIsCollected: each Deployment's pods are behind a Service that a ServiceMonitor selects, with a port that both know and a
// container has, so that no role's panels stay empty.
func TestEveryRoleIsCollected(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"testdata/everything.txtar", "testdata/minimal.txtar"} {
		g := read(t, file)
		g.env.Kinds[KindServiceMonitor], g.env.Kinds[KindPrometheus] = true, true
		on := true
		if g.config.Spec.Prometheus == nil {
			g.config.Spec.Prometheus = &kaiv1.Prometheus{}
		}
		g.config.Spec.Prometheus.Enabled = &on
		objects, _, err := Render(&g.config, g.shards, g.env)
		if err != nil {
			t.Fatal(err)
		}
		var services []*corev1.Service
		var monitors []*unstructured.Unstructured
		var deployments []*appsv1.Deployment
		for _, o := range objects {
			switch o := o.(type) {
			case *corev1.Service:
				services = append(services, o)
			case *appsv1.Deployment:
				deployments = append(deployments, o)
			case *unstructured.Unstructured:
				if o.GetKind() == KindServiceMonitor.Kind {
					monitors = append(monitors, o)
				}
			}
		}
		if len(deployments) < len(g.shards)+5 {
			t.Errorf("%s: only %d Deployments", file, len(deployments))
		}
		for _, d := range deployments {
			if !slices.ContainsFunc(services, func(s *corev1.Service) bool { return behind(d, s) && slices.ContainsFunc(monitors, collects(t, d, s)) }) {
				t.Errorf("%s: no ServiceMonitor collects from %s", file, d.Name)
			}
		}
	}
}

// behind says whether a Service leads to the pods of a Deployment.
func behind(d *appsv1.Deployment, s *corev1.Service) bool {
	return s.Namespace == d.Namespace && len(s.Spec.Selector) > 0 && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels))
}

// collects says whether a monitor selects the Service, by a port of it that leads to one of the Deployment's containers.
func collects(t *testing.T, d *appsv1.Deployment, s *corev1.Service) func(*unstructured.Unstructured) bool {
	return func(m *unstructured.Unstructured) bool {
		var spec struct {
			Endpoints         []struct{ Port string }
			NamespaceSelector struct{ MatchNames []string }
			Selector          metav1.LabelSelector
		}
		text, err := json.Marshal(m.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		if !selector.Matches(labels.Set(s.Labels)) || !slices.Contains(spec.NamespaceSelector.MatchNames, s.Namespace) {
			return false
		}
		for _, port := range s.Spec.Ports {
			for _, e := range spec.Endpoints {
				for _, c := range d.Spec.Template.Spec.Containers {
					if e.Port == port.Name && slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
						return p.Name == port.TargetPort.StrVal || p.ContainerPort == port.TargetPort.IntVal
					}) {
						return true
					}
				}
			}
		}
		return false
	}
}
