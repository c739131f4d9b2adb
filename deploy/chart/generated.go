package chart

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	kubebatchcrds "github.com/muster-scheduler/muster/api/kubebatch/crds"
	volcanocrds "github.com/muster-scheduler/muster/api/volcano/crds"
	volcanokeys "github.com/muster-scheduler/muster/api/volcano/keys"
	review "github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/monitoring"
)

// GeneratedOnly are patterns of the chart's files that are all generated.
func GeneratedOnly() []string { return []string{"crds/*", "files/dashboards/*"} }

// Generated are the chart's files that are made from what the program knows, by their names in the chart.
func Generated() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, f := range crds.All() {
		out["crds/"+f.Name] = f.YAML
	}
	may := install.Rules(install.Operator)
	rules, err := yaml.Marshal(map[string]any{"cluster": may.Cluster, "home": may.Home, "reserved": may.Reserved, "scaling": may.Scaling})
	if err != nil {
		return nil, fmt.Errorf("write the operator's rules: %w", err)
	}
	const head = "# Generated from internal/install (make generate): what the operator may do, in the cluster, in its own namespace, in that of\n# the pods that hold shared GPUs, and in that of the pods that show demand.\n"
	out["files/rbac.yaml"] = append([]byte(head), rules...)
	if out["files/volcano.yaml"], err = volcano(); err != nil {
		return nil, err
	}
	if out["files/kubebatch.yaml"], err = kubeBatch(); err != nil {
		return nil, err
	}
	if out["files/ui.yaml"], err = people(); err != nil {
		return nil, err
	}
	if out["files/kubernetes.yaml"], err = needs(); err != nil {
		return nil, err
	}
	alerts, err := monitoring.PrometheusRule()
	if err != nil {
		return nil, fmt.Errorf("write the alerts: %w", err)
	}
	out["files/prometheusrule.yaml"] = alerts
	for _, d := range monitoring.Dashboards() {
		if out["files/dashboards/"+d.Name+".json"], err = d.JSON(); err != nil {
			return nil, fmt.Errorf("write dashboard %s: %w", d.Name, err)
		}
	}
	return out, nil
}

// volcano is what the templates of Volcano's face know: the names of its definitions, and what the controllers may do.
func volcano() ([]byte, error) {
	var names []string
	for _, f := range volcanocrds.All() {
		group, plural, _ := strings.Cut(strings.TrimSuffix(f.Name, ".yaml"), "_")
		names = append(names, plural+"."+group)
	}
	face := review.DefaultOptions()
	face.Volcano, face.VolcanoGates, face.VolcanoGroupsIn = []string{volcanokeys.SchedulerName}, true, volcanokeys.Namespace
	may, scheduler, admission := install.Rules(install.VolcanoControllers), install.Rules(install.VolcanoScheduler), install.Rules(install.VolcanoAdmission)
	text, err := yaml.Marshal(map[string]any{"crds": names, "cluster": may.Cluster, "home": may.Home, "scheduler": scheduler.Cluster, "schedulerHome": scheduler.Home, "schedulerGates": install.Rules(install.VolcanoQueueGates).Cluster, "admission": admission.Cluster, "admissionHome": admission.Home, "policies": face.VolcanoPolicies(), "mutations": face.VolcanoMutations()})
	if err != nil {
		return nil, fmt.Errorf("write what Volcano's controllers may do: %w", err)
	}
	const head = "# Generated from api/volcano/crds and internal/install (make generate): the definitions of Volcano's face, what its controllers may do, in the\n# cluster, and in the namespace of their Lease, and what the scheduler and admission may do besides.\n"
	return append([]byte(head), text...), nil
}

// kubeBatch is what the templates of kube-batch's face know: the names of its definitions, and what the scheduler may do besides.
func kubeBatch() ([]byte, error) {
	var names []string
	for _, f := range kubebatchcrds.All() {
		group, plural, _ := strings.Cut(strings.TrimSuffix(f.Name, ".yaml"), "_")
		names = append(names, plural+"."+group)
	}
	text, err := yaml.Marshal(map[string]any{"crds": names, "scheduler": install.Rules(install.KubeBatchScheduler).Cluster})
	if err != nil {
		return nil, fmt.Errorf("write what the scheduler may do with kube-batch's kinds: %w", err)
	}
	const head = "# Generated from api/kubebatch/crds and internal/install (make generate): the definitions of kube-batch's face, and what the scheduler may do besides.\n"
	return append([]byte(head), text...), nil
}

// people is what the role that answers people may do.
func people() ([]byte, error) {
	may := install.Rules(install.UI)
	text, err := yaml.Marshal(map[string]any{"cluster": may.Cluster, "home": may.Home})
	if err != nil {
		return nil, fmt.Errorf("write what the role ui may do: %w", err)
	}
	const head = "# Generated from internal/install (make generate): what the role ui may do, in the cluster, and in the control plane's namespace.\n"
	return append([]byte(head), text...), nil
}

// needs are what comes with Kubernetes, and Muster can do without: what the notes after an install say is lacking.
func needs() ([]byte, error) {
	type need struct {
		Name string `json:"name"`
		// API is the group and version that the kinds are of; "" for a feature gate.
		API string `json:"api,omitempty"`
		// Since is the minor version of Kubernetes 1 that has it by default.
		Since int    `json:"since"`
		Lost  string `json:"lost"`
	}
	var list []need
	for _, n := range served.Needs() {
		if n.Since == 0 {
			continue // the release brings it, or whoever wants it
		}
		row := need{Name: string(n.Name), Since: n.Since, Lost: n.Lost}
		if !n.Gate() {
			row.API = n.Kinds[0].GroupVersion().String()
		}
		list = append(list, row)
	}
	text, err := yaml.Marshal(map[string]any{"needs": list})
	if err != nil {
		return nil, fmt.Errorf("write what Kubernetes may lack: %w", err)
	}
	const head = "# Generated from internal/kube/served (make generate): what Muster can do without, the minor version of Kubernetes 1 that has it by\n# default, and what is lost without it.\n"
	return append([]byte(head), text...), nil
}
