package queue

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Options are the settings of the queue role. The flags of the process around it (addresses, leader election, client
// rates) are not among them.
type Options struct {
	// MetricsNamespace is what the names of the metrics begin with, before an underscore. Default: kai.
	MetricsNamespace string

	// LabelToMetricLabel adds labels of the Queue object to its metrics: "object-label=metric_label,…". Default: none.
	LabelToMetricLabel string

	// LabelToDefaultMetricValue gives the values of such metric labels on queues that lack the object label:
	// "object-label=value,…". Default: the empty value for all.
	LabelToDefaultMetricValue string
}

// DefaultOptions are KAI's.
func DefaultOptions() Options { return Options{MetricsNamespace: "kai"} }

// Bind declares the role's flags, by KAI's names, with the values of o as defaults.
func (o *Options) Bind(fs *pflag.FlagSet) {
	fs.StringVar(&o.MetricsNamespace, "metrics-namespace", o.MetricsNamespace, "first part of the metrics' names")
	fs.StringVar(&o.LabelToMetricLabel, "queue-label-to-metric-label", o.LabelToMetricLabel,
		"labels of queues that become labels of their metrics: object-label=metric_label,...")
	fs.StringVar(&o.LabelToDefaultMetricValue, "queue-label-to-default-metric-value", o.LabelToDefaultMetricValue,
		"values of these metric labels for queues without the label: object-label=value,...")
}

// metricName is what Prometheus takes for a label, and, as a prefix, for a metric without colons.
var metricName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// mapped reads the two label options. The result is sorted by metric label.
func (o Options) mapped() ([]mapped, error) {
	if o.MetricsNamespace != "" && !metricName.MatchString(o.MetricsNamespace) {
		return nil, fmt.Errorf("queue role: --metrics-namespace=%q: it must consist of letters, digits and _", o.MetricsNamespace)
	}
	names, err := pairs("queue-label-to-metric-label", o.LabelToMetricLabel)
	if err != nil {
		return nil, err
	}
	defaults, err := pairs("queue-label-to-default-metric-value", o.LabelToDefaultMetricValue)
	if err != nil {
		return nil, err
	}
	used := map[string]bool{"queue_name": true, "queue_metadata_name": true, "queue_display_name": true}
	out := make([]mapped, 0, len(names))
	for object, metric := range names {
		if !metricName.MatchString(metric) || strings.HasPrefix(metric, "__") {
			return nil, fmt.Errorf("queue role: --queue-label-to-metric-label: %q is no name of a metric label", metric)
		}
		if used[metric] {
			return nil, fmt.Errorf("queue role: --queue-label-to-metric-label: metric label %s is given twice", metric)
		}
		used[metric] = true
		out = append(out, mapped{object: object, metric: metric, fallback: defaults[object]})
	}
	slices.SortFunc(out, func(a, b mapped) int { return strings.Compare(a.metric, b.metric) })
	return out, nil
}

// pairs reads "k=v,k=v".
func pairs(flag, s string) (map[string]string, error) {
	out := map[string]string{}
	for _, part := range strings.Split(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("queue role: --%s: %q is not of the form key=value", flag, part)
		}
		if _, twice := out[k]; twice {
			return nil, fmt.Errorf("queue role: --%s: key %s is given twice", flag, k)
		}
		out[k] = v
	}
	return out, nil
}
