package volcano

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/rescheduling"
	"github.com/muster-scheduler/muster/internal/profile/volcano"
)

// ofPrograms are the differences that are seen from how Volcano's programs are configured.
func ofPrograms() []difference {
	return []difference{
		{row: "scheduler-file", find: schedulerFile},
		{row: "shuffle", find: fileHas(func(f *engine.Face) bool { return slices.Contains(f.Actions, "shuffle") })},
		{row: "rescheduling", find: fileHas(func(f *engine.Face) bool {
			return slices.ContainsFunc(f.Tiers, func(tier []engine.PluginUse) bool {
				return slices.ContainsFunc(tier, func(u engine.PluginUse) bool { return u.Name == rescheduling.Name })
			})
		})},
		{row: "scheduler-file-refused", next: "mend the file before the change: Volcano's compiled-in one would rule", find: schedulerFileRefused},
		{row: "scheduler-flags", find: schedulerFlags},
		{row: "several-schedulers", next: "one scheduler, or a NodeShard for each", find: func(o *Objects, f *found) {
			for i := range o.Programs {
				if p := &o.Programs[i]; p.What == programScheduler && slices.ContainsFunc(p.Variables, func(v string) bool { return strings.HasPrefix(v, "MULTI_SCHEDULER") || v == "SCHEDULER_NUM" }) {
					f.add("", p.Kind, p.Namespace, p.Name)
				}
			}
		}},
		{row: "controller-flags", find: func(o *Objects, f *found) {
			o.flagged(programControllers, []string{"feature-gates", "enable-healthz", "enable-metrics"}, f)
		}},
		{row: "admission-flags", find: func(o *Objects, f *found) {
			o.flagged(programAdmission, []string{"max-queue-depth", "enable-root-queue-protection", "enable-queue-allocated-pods-check", "enabled-admission"}, f)
		}},
		{row: "controller-config", next: "the same data in a ConfigMap of that name", find: func(o *Objects, f *found) {
			for i := range o.ConfigMaps {
				if m := &o.ConfigMaps[i]; m.Data[keys.ControllerConfigKey] != "" && m.Name != keys.ControllerConfig {
					f.add("", "ConfigMap", m.Namespace, m.Name)
				}
			}
		}},
		{row: "discovery-interval", find: func(o *Objects, f *found) {
			o.discoveries(f, func(d discovery) bool { return d.Enabled && d.Interval != nil })
		}},
		{row: "discovery-ufm", next: "make the HyperNodes from node labels, or by hand", find: func(o *Objects, f *found) {
			o.discoveries(f, func(d discovery) bool { return d.Enabled && d.Source == "ufm" })
		}},
		{row: "pods-changed", find: func(o *Objects, f *found) {
			for i := range o.ConfigMaps {
				m := &o.ConfigMaps[i]
				var config struct {
					Groups []any `json:"resourceGroups"`
				}
				if yaml.Unmarshal([]byte(m.Data[keys.AdmissionConfigKey]), &config) == nil && len(config.Groups) > 0 {
					f.add("", "ConfigMap", m.Namespace, m.Name)
				}
			}
		}},
	}
}

// files are the scheduler files of the cluster: of each ConfigMap of a scheduler's those keys that end in .conf, or the one that its flag names.
func (o *Objects) files(each func(about, text string)) {
	named := map[string]string{} // namespace/ConfigMap: the key that a flag says
	for i := range o.Programs {
		p := &o.Programs[i]
		if p.What != programScheduler {
			continue
		}
		key := ""
		for _, where := range p.values("scheduler-conf") {
			key = path.Base(where)
		}
		for _, m := range p.Maps {
			named[p.Namespace+"/"+m] = key
		}
	}
	for i := range o.ConfigMaps {
		m := &o.ConfigMaps[i]
		key, mounted := named[m.Namespace+"/"+m.Name]
		if !mounted && m.Name != schedulerConfig {
			continue
		}
		for _, name := range sorted(m.Data) {
			if name == key || m.Data[key] == "" && strings.HasSuffix(name, ".conf") {
				each(m.Namespace+"/"+m.Name+":"+name, m.Data[name])
			}
		}
	}
}

// schedulerFile tells what Muster's reader of such files does.
func schedulerFile(o *Objects, f *found) {
	o.files(func(about, text string) {
		file, err := volcano.Parse([]byte(text), builtin.Registry())
		if err != nil {
			return
		}
		for _, told := range file.Told {
			f.add(told.Error(), "ConfigMap", "", about)
		}
	})
}

// fileHas finds scheduler files of which something holds.
func fileHas(holds func(f *engine.Face) bool) func(o *Objects, f *found) {
	return func(o *Objects, f *found) {
		o.files(func(about, text string) {
			if file, err := volcano.Parse([]byte(text), builtin.Registry()); err == nil && holds(&file.Face) {
				f.add("", "ConfigMap", "", about)
			}
		})
	}
}

func schedulerFileRefused(o *Objects, f *found) {
	o.files(func(about, text string) {
		if _, err := volcano.Parse([]byte(text), builtin.Registry()); err != nil {
			f.add("the scheduler file is refused: "+brief(err.Error()), "ConfigMap", "", about)
		}
	})
}

// plain are flags of Volcano's scheduler that Muster's have their like of, or that say nothing of decisions.
func plain() []string {
	return []string{
		"scheduler-conf", "scheduler-name", "scheduler-sharding-mode", "scheduler-sharding-name", "v", "logtostderr", "alsologtostderr", "vmodule", "log-flush-frequency", "kubeconfig", "master",
		"kube-api-qps", "kube-api-burst", "listen-address", "healthz-address", "enable-healthz", "enable-metrics", "enable-pprof", "version", "leader-elect", "lock-object-namespace",
		"leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period", "leader-elect-resource-lock", "leader-elect-resource-name", "leader-elect-resource-namespace",
		"cache-dumper", "cache-dump-dir", "resync-period", "node-worker-threads", "tls-cert-file", "tls-private-key-file", "ca-cert-file",
	}
}

func schedulerFlags(o *Objects, f *found) {
	for i := range o.Programs {
		p := &o.Programs[i]
		if p.What != programScheduler {
			continue
		}
		for _, word := range p.Words {
			name, dashed := strings.CutPrefix(word, "-")
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
			if dashed && name != "" && !slices.Contains(plain(), name) {
				f.add(fmt.Sprintf("the flag --%s of Volcano's scheduler is not read", brief(name)), p.Kind, p.Namespace, p.Name)
			}
		}
	}
}

// flagged finds programs that are given one of some flags.
func (o *Objects) flagged(what string, names []string, f *found) {
	for i := range o.Programs {
		p := &o.Programs[i]
		if p.What == what && slices.ContainsFunc(names, func(name string) bool { return p.values(name) != nil }) {
			f.add("", p.Kind, p.Namespace, p.Name)
		}
	}
}

// discovery is what the controllers' file says of one source of HyperNodes.
type discovery struct {
	Source   string `json:"source"`
	Enabled  bool   `json:"enabled"`
	Interval any    `json:"interval"`
}

// discoveries finds files with a source that is so. A file that cannot be read has none.
func (o *Objects) discoveries(f *found, so func(discovery) bool) {
	for i := range o.ConfigMaps {
		m := &o.ConfigMaps[i]
		var config struct {
			Discovery []discovery `json:"networkTopologyDiscovery"`
		}
		if err := yaml.Unmarshal([]byte(m.Data[keys.ControllerConfigKey]), &config); err == nil && slices.ContainsFunc(config.Discovery, so) {
			f.add("", "ConfigMap", m.Namespace, m.Name)
		}
	}
}
