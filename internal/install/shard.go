package install

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/spelling"
)

// Where a scheduler finds what it needs in its container.
const (
	configFolder = "/etc/config"
	configFile   = "config.yaml"
)

// shard renders the scheduler of one shard. After an error nothing of it has been rendered.
func (r *renderer) shard(s *kaiv1.SchedulingShard) error {
	c := r.spec.Scheduler
	if !*c.Service.Enabled {
		return nil
	}
	warnings := len(r.warnings)
	conf, err := r.schedulerConfig(s)
	if err == nil {
		err = r.alone(s)
	}
	if err == nil {
		err = r.claim(s, conf.past.claim)
	}
	if err != nil {
		r.warnings = r.warnings[:warnings]
		return err
	}
	name := r.schedulerName(s.Name)
	sum := sha256.Sum256([]byte(conf.text))
	w := &workload{
		role: Scheduler, name: name, shard: s.Name, path: "spec.scheduler", service: c.Service, client: limits(c.Service), replicas: *c.Replicas, vpa: c.VPA,
		args: r.schedulerArgs(s), env: r.schedulerEnv(s, conf),
		ports: []corev1.ContainerPort{port(PortMetrics, *c.SchedulerService.TargetPort)}, probe: PortMetrics,
		volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, DefaultMode: ptr.To[int32](0o644),
		}}}},
		mounts: []corev1.VolumeMount{{Name: "config", MountPath: configFolder, ReadOnly: true}},
		notes:  map[string]string{AnnotationConfig: hex.EncodeToString(sum[:8])},
	}
	if r.servesCycles() {
		w.private = []corev1.ContainerPort{port(PortCycles, CyclesPort)}
	}
	r.history(s, w, conf)
	r.kubeBatchFile(s, w)
	r.add(Scheduler, &corev1.ConfigMap{
		TypeMeta:   kind("v1", "ConfigMap"),
		ObjectMeta: metav1.ObjectMeta{Namespace: r.spec.Namespace, Name: name, Labels: map[string]string{LabelShard: ShardLabel(s.Name)}},
		Data:       map[string]string{configFile: conf.text},
	})
	r.deploy(w)
	v := corev1.ServiceSpec{
		Type:  *c.SchedulerService.Type,
		Ports: []corev1.ServicePort{servicePort(PortMetrics, *c.SchedulerService.Port, PortMetrics)},
	}
	if v.Type == corev1.ServiceTypeClusterIP {
		v.ClusterIP = corev1.ClusterIPNone
	}
	w.led = r.leads()
	r.inFront(w, name, v, map[string]string{"prometheus.io/scrape": "true"})
	if w.led {
		r.leader(w, name, s)
	}
	return nil
}

// alone refuses a shard whose part of the cluster is another's already: the elder's, or of two of the same age the first's by
// name. Their schedulers would compete for one Lease.
func (r *renderer) alone(s *kaiv1.SchedulingShard) error {
	for i := range r.shards {
		o := &r.shards[i]
		if o.Name == s.Name || o.Spec.PartitionLabelValue != s.Spec.PartitionLabelValue || o.Spec.Args["partition-label-value"] != s.Spec.Args["partition-label-value"] {
			continue
		}
		if elder := o.CreationTimestamp.Compare(s.CreationTimestamp.Time); elder < 0 || elder == 0 && o.Name < s.Name {
			return fmt.Errorf("spec.partitionLabelValue is %q, which is SchedulingShard %s's already", s.Spec.PartitionLabelValue, o.Name)
		}
	}
	return nil
}

func (r *renderer) warnShard(s *kaiv1.SchedulingShard, field, rule string, args ...any) {
	r.warnings = append(r.warnings, Warning{Object: "SchedulingShard " + s.Name, Field: field, Rule: fmt.Sprintf(rule, args...)})
}

func (r *renderer) warnUnknown(s *kaiv1.SchedulingShard, field, rule string) {
	r.warnings = append(r.warnings, Warning{Object: "SchedulingShard " + s.Name, Field: field, Rule: rule, Unknown: true})
}

// reserved are flags that a shard's arguments cannot change, and why.
var reserved = map[string]string{
	"leader-elect":   "every replica elects, so that old and new never work beside each other",
	"listen-address": "spec.scheduler.schedulerService.targetPort of the Config says it",
}

// schedulerArgs are the flags that the operator derives, and those of the shard, which win.
func (r *renderer) schedulerArgs(s *kaiv1.SchedulingShard) []string {
	g := r.spec.Global
	names := []string{
		"scheduler-conf", "scheduler-name", "namespace", "nodepool-label-key", "partition-label-value", "resource-reservation-app-label", "resource-reservation-namespace", "scale-adjust-namespace", "queue-label-key", "listen-address",
	}
	values := map[string]string{
		"scheduler-conf": configFolder + "/" + configFile, "scheduler-name": *g.SchedulerName, "namespace": r.spec.Namespace,
		"nodepool-label-key": r.poolKey(), "partition-label-value": s.Spec.PartitionLabelValue,
		"resource-reservation-app-label": *r.spec.Binder.ResourceReservation.AppLabel, "resource-reservation-namespace": *r.spec.Binder.ResourceReservation.Namespace,
		"scale-adjust-namespace": *r.spec.NodeScaleAdjuster.Args.NodeScaleNamespace, "queue-label-key": r.queueKey(),
		"listen-address": fmt.Sprintf(":%d", *r.spec.Scheduler.SchedulerService.TargetPort),
	}
	if m := ptr.Deref(r.spec.QueueController.MetricsNamespace, ""); m != "" {
		names = append(names, "metrics-namespace")
		values["metrics-namespace"] = m
	}
	if r.servesCycles() {
		names = append(names, "cycle-listen-address")
		values["cycle-listen-address"] = fmt.Sprintf(":%d", CyclesPort)
	}
	if *r.spec.NodeScaleAdjuster.Service.Enabled { // somebody buys nodes for pods that say Unschedulable
		names = append(names, "unschedulable-reason")
		values["unschedulable-reason"] = "if-nodes-help"
	}
	for _, name := range slices.Sorted(maps.Keys(s.Spec.Args)) {
		field := "spec.args." + name
		switch why, fixed := reserved[name]; {
		case fixed:
			r.warnShard(s, field, "has no effect: %s", why)
			continue
		case r.env.SchedulerFlags != nil && !slices.Contains(r.env.SchedulerFlags, name):
			r.warnUnknown(s, field, "is left out: the scheduler has no such flag; the nearest that it has is "+spelling.Nearest(name, r.env.SchedulerFlags, spelling.Any))
			continue
		}
		if _, derived := values[name]; !derived {
			names = append(names, name)
		}
		values[name] = s.Spec.Args[name]
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = "--" + name + "=" + values[name]
	}
	return out
}

func (r *renderer) schedulerEnv(s *kaiv1.SchedulingShard, conf *schedulerConf) []corev1.EnvVar {
	out := []corev1.EnvVar{{Name: "GOGC", Value: strconv.Itoa(*r.spec.Scheduler.GOGC)}}
	if limit := s.Spec.GoMemLimit; limit != nil {
		if s.Spec.GoMemLimitRatio != nil {
			r.warnShard(s, "spec.goMemLimitRatio", "has no effect beside goMemLimit")
		}
		out = append(out, corev1.EnvVar{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit.Value(), 10)})
	} else {
		out = append(out, corev1.EnvVar{Name: "KAI_GOMEMLIMIT_RATIO", Value: strconv.FormatFloat(ptr.Deref(s.Spec.GoMemLimitRatio, 0.9), 'f', -1, 64)})
	}
	if conf.env != "" {
		out = append(out, corev1.EnvVar{Name: conf.env, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: SecretUsage}, Key: conf.env, Optional: ptr.To(true),
		}}})
	}
	return out
}

// schedulerConf is a shard's configuration file, and what it needs in the container.
type schedulerConf struct {
	text string
	env  string // the environment variable that names the history's address
	past past
}

// schedulerConfig writes a shard's configuration file, and reads it as the scheduler will, so that what it would refuse is
// known here.
func (r *renderer) schedulerConfig(s *kaiv1.SchedulingShard) (*schedulerConf, error) {
	if err := checkShard(s); err != nil {
		return nil, err
	}
	conf, spec := &schedulerConf{}, s.Spec.DeepCopy()
	var err error
	if spec.UsageDBConfig, err = r.usage(s, conf); err != nil {
		return nil, err
	}
	asked := profile.Of(spec)
	body, err := profile.File(asked)
	if err != nil {
		return nil, err
	}
	for _, w := range asked.Warnings() {
		field, rule, _ := strings.Cut(w, " ")
		r.warnShard(s, "spec."+field, "%s", rule)
	}
	r.overridden(s)
	conf.text = string(body)
	read, err := profile.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	if r.env.Check != nil {
		unknown, err := r.env.Check(asked, read)
		if err != nil {
			return nil, fmt.Errorf("spec: %w", err)
		}
		for _, u := range unknown {
			r.warnUnknown(s, "spec."+u.Field, u.Rule)
		}
	}
	return conf, nil
}

// overridden warns of fields that are lost because arguments replace all that a plugin would get, as in KAI.
func (r *renderer) overridden(s *kaiv1.SchedulingShard) {
	for _, o := range []struct {
		field, plugin string
		given         bool
		arguments     []string
	}{
		{"spec.kValue", "proportion", s.Spec.KValue != nil, []string{"kValue"}},
		{"spec.minRuntime", "minruntime", s.Spec.MinRuntime != nil, []string{"defaultPreemptMinRuntime", "defaultReclaimMinRuntime"}},
		{"spec.placementStrategy", "nodeplacement", s.Spec.PlacementStrategy != nil, []string{"gpu", "cpu"}},
	} {
		given := s.Spec.Plugins[o.plugin].Arguments
		if o.given && given != nil && !slices.ContainsFunc(o.arguments, func(a string) bool { _, ok := given[a]; return ok }) {
			r.warnShard(s, o.field, "does not reach plugin %s: spec.plugins.%s.arguments replaces all its arguments", o.plugin, o.plugin)
		}
	}
}

// checkShard looks at what neither the CRD nor the profile does.
func checkShard(s *kaiv1.SchedulingShard) error {
	if v := s.Spec.PartitionLabelValue; v != "" {
		if errs := validation.IsValidLabelValue(v); len(errs) > 0 {
			return fmt.Errorf("spec.partitionLabelValue is %q, which is no label's value: %s", v, strings.Join(errs, ", "))
		}
	}
	if ratio := s.Spec.GoMemLimitRatio; ratio != nil && !(*ratio > 0 && *ratio <= 1) {
		return fmt.Errorf("spec.goMemLimitRatio is %v; it must be above 0 and at most 1", *ratio)
	}
	if limit := s.Spec.GoMemLimit; limit != nil && limit.Sign() <= 0 {
		return fmt.Errorf("spec.goMemLimit is %v; it must be above 0", limit)
	}
	return nil
}
