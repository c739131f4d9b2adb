package volcano

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/muster-scheduler/muster/internal/engine/plugins/usage"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Metrics is a Prometheus server that knows how busy nodes are.
type Metrics struct {
	// Address is its URL, http or https. It may carry a user and a password.
	Address string
	// Interval is the time between two looks at it, LeastInterval or more.
	Interval time.Duration
}

// LeastInterval is the shortest time between two looks, and the default that of Volcano's documentation.
const (
	LeastInterval   = 5 * time.Second
	defaultInterval = 30 * time.Second
)

// typePrometheus is the type of source that is asked.
const typePrometheus = "prometheus"

// metrics reads the key metrics.
func (r *reader) metrics(key, value *yaml.Node) error {
	r.metricsAt = key.Line
	m, kind, kindAt := Metrics{Interval: defaultInterval}, "", key.Line
	err := entries(value, key.Value, func(key, value *yaml.Node) error {
		field := "metrics." + brief(key.Value)
		switch key.Value {
		case "type":
			var err error
			kind, err = scalar(value, field)
			kindAt = key.Line
			return err
		case "address":
			text, err := scalar(value, field)
			if err != nil {
				return err
			}
			if m.Address = text; text == "" {
				return nil
			}
			if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return Fault{value.Line, field, "must be a URL like http://prometheus:9090"} // and is not repeated: it may carry a password
			}
		case "interval":
			text, err := scalar(value, field)
			if err != nil {
				return err
			}
			if m.Interval, err = time.ParseDuration(text); err != nil || m.Interval <= 0 {
				return Fault{value.Line, field, fmt.Sprintf("is %q; it must be a duration above 0, such as 30s", brief(text))}
			}
			if m.Interval < LeastInterval {
				r.tell(key.Line, field, fmt.Sprintf("is %s; the source is asked every %s, and no oftener", m.Interval, LeastInterval))
				m.Interval = LeastInterval
			}
			if m.Interval > usage.Fresh {
				r.tell(key.Line, field, fmt.Sprintf("is %s; what was measured counts for %s, and between that and the next look plugin usage has no opinion", m.Interval, usage.Fresh))
			}
		case "tls":
			r.tell(key.Line, field, "has no effect: the certificate of an https address is verified, by the authorities that the system knows and for the address's own name")
		case "elasticsearch":
			r.tell(key.Line, field, "has no effect: of the sources only prometheus is asked")
		default:
			r.tell(key.Line, field, "is no key of metrics; known are type, address, interval, tls and elasticsearch")
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case kind == "" || m.Address == "" && kind == typePrometheus:
		r.tell(key.Line, key.Value, "has no effect without type and address")
	case kind == "prometheus_adaptor" || kind == "elasticsearch":
		r.tell(kindAt, "metrics.type", fmt.Sprintf("is %s and has no effect: of the sources only prometheus is asked", kind))
	case kind != typePrometheus:
		r.tell(kindAt, "metrics.type", fmt.Sprintf("is %q, which is no source, and has no effect; known are prometheus, prometheus_adaptor and elasticsearch", brief(kind)))
	default:
		r.out.Metrics = &m
	}
	return nil
}

// measured says what a source without a reader, or a reader without a source, comes to.
func (r *reader) measured() {
	line, named := r.plugins[usage.Name]
	switch {
	case named && r.out.Metrics == nil:
		r.tell(line, "tiers", "name plugin usage, which has no opinion without metrics of type prometheus and with an address: nobody says how busy nodes are")
	case !named && r.out.Metrics != nil:
		r.out.Metrics = nil
		r.tell(r.metricsAt, "metrics", "has no effect: of the plugins only usage looks at how busy nodes are, and the file does not name it")
	}
}

// idleUsage tells of what plugin usage knows and cannot do.
func (r *reader) idleUsage(field string, args policy.Arguments, at map[string]int) {
	line := at[usage.BurstArgument]
	if group, _, _ := strings.Cut(usage.BurstArgument, "."); line == 0 && strings.Contains(args[group], `"burst_ratio"`) {
		line = at[group]
	}
	if line > 0 {
		r.tell(line, field+".arguments."+usage.BurstArgument, "has no effect: what pods may use beyond what they ask for is not known here")
	}
}
