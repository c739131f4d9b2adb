package install

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// Names of what is collected from.
const (
	monitor      = "muster"             // every Service of ours
	stateMonitor = "kube-state-metrics" // what nodes have, for the shares of usage
)

// prometheus renders the store of metrics and what it collects: the store if Config asks for one and names no other, the
// monitors for either.
func (r *renderer) prometheus(p *kaiv1.Prometheus) {
	if p.SampleInterval != nil {
		r.warn("spec.prometheus.sampleInterval", "has no effect: spec.prometheus.serviceMonitor.interval counts")
	}
	external := ptr.Deref(p.ExternalPrometheusURL, "") != ""
	if !*p.Enabled && !external {
		return
	}
	accounting := map[string]any{*p.AccountingLabelKey: *p.AccountingLabelValue}
	if *p.Enabled && !external {
		if r.env.Kinds[KindPrometheus] {
			r.store(p, accounting)
		} else {
			r.missing("spec.prometheus.enabled", KindPrometheus.Kind, "install the Prometheus operator")
		}
	}
	if !*p.ServiceMonitor.Enabled {
		return
	}
	if !r.env.Kinds[KindServiceMonitor] {
		r.missing("spec.prometheus.serviceMonitor.enabled", KindServiceMonitor.Kind, "install the Prometheus operator")
		return
	}
	endpoint := func(port string) any {
		return map[string]any{
			"port": port, "interval": *p.ServiceMonitor.Interval, "scrapeTimeout": *p.ServiceMonitor.ScrapeTimeout, "bearerTokenFile": *p.ServiceMonitor.BearerTokenFile,
		}
	}
	endpoints := []any{endpoint(PortMetrics)}
	if name := *r.spec.QueueController.ControllerService.Metrics.Name; name != PortMetrics {
		endpoints = append(endpoints, endpoint(name))
	}
	for _, m := range []struct {
		name       string
		endpoints  []any
		label      [2]string
		namespaces []any
	}{
		{monitor, endpoints, [2]string{LabelPartOf, PartOf}, []any{r.spec.Namespace}},
		{stateMonitor, []any{endpoint("http")}, [2]string{"app.kubernetes.io/name", "kube-state-metrics"}, []any{"monitoring", "default"}},
	} {
		o := r.foreign(Prometheus, "monitoring.coreos.com/v1", KindServiceMonitor.Kind, m.name, map[string]any{
			"endpoints": m.endpoints, "namespaceSelector": map[string]any{"matchNames": m.namespaces},
			"selector": map[string]any{"matchLabels": map[string]any{m.label[0]: m.label[1]}},
		})
		labels := o.GetLabels()
		labels[*p.AccountingLabelKey] = *p.AccountingLabelValue
		o.SetLabels(labels)
	}
}

// store renders the Prometheus server itself.
func (r *renderer) store(p *kaiv1.Prometheus, accounting map[string]any) {
	r.account(Prometheus)
	selector := func() map[string]any { return map[string]any{"matchLabels": accounting} }
	spec := map[string]any{
		"replicas": int64(1), "retention": *p.RetentionPeriod, "serviceAccountName": Name(Prometheus),
		"serviceMonitorSelector": selector(), "ruleSelector": selector(),
		// What other namespaces' monitors bring in could say of queues what it likes, as could targets that choose their own labels.
		"serviceMonitorNamespaceSelector": map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: r.spec.Namespace}},
		"overrideHonorLabels":             true,
		"podMetadata":                     map[string]any{"labels": map[string]any{LabelApp: Name(Prometheus), LabelPartOf: PartOf}},
	}
	if *p.EnablePersistentStorage {
		spec["storage"] = map[string]any{"volumeClaimTemplate": map[string]any{"spec": map[string]any{
			"accessModes": []any{string(corev1.ReadWriteOnce)}, "storageClassName": *p.StorageClassName,
			"resources": map[string]any{"requests": map[string]any{"storage": *p.StorageSize}},
		}}}
	}
	if !*r.spec.Global.Openshift {
		spec["securityContext"] = map[string]any{"runAsNonRoot": true, "runAsUser": int64(1000), "fsGroup": int64(2000), "seccompProfile": map[string]any{"type": "RuntimeDefault"}}
	}
	r.foreign(Prometheus, "monitoring.coreos.com/v1", KindPrometheus.Kind, *p.InstanceName, spec)
	r.add(Prometheus, &corev1.Service{
		TypeMeta: kind("v1", "Service"), ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: PrometheusService},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: Selector(Name(Prometheus)),
			Ports: []corev1.ServicePort{{Name: "http", Port: PrometheusPort, TargetPort: intstr.FromInt32(PrometheusPort), Protocol: corev1.ProtocolTCP}},
		},
	})
}
