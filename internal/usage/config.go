package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Client is a kind of source.
type Client string

// The clients. Embedded is ours, the others are KAI's.
const (
	// Embedded is the store on disk that the scheduler fills itself. It is also what fake-with-history becomes.
	Embedded Client = "embedded"
	// Prometheus is a Prometheus server.
	Prometheus Client = "prometheus"
	// Fake has no history: nobody used anything.
	Fake Client = "fake"
)

// fakeWithHistory is KAI's client for tests that remembers what it is told; which the embedded store does.
const fakeWithHistory = "fake-with-history"

// Dimension is one dimension of the cluster and where its history is found.
type Dimension struct {
	// Name is the dimension's name in the model: "gpu", "cpu" or "memory".
	Name string
	// Held is the PromQL expression of what each queue holds, one series per value of label queue_name.
	Held string
	// Had is the PromQL expression of what the cluster has, one series, in the same unit.
	Had string
}

// Dimensions are the dimensions whose usage counts, with KAI's metrics.
func Dimensions() []Dimension {
	return []Dimension{
		{"gpu", "kai_queue_allocated_gpus", `sum(kube_node_status_capacity{resource="nvidia_com_gpu"})`},
		{"cpu", "kai_queue_allocated_cpu_cores", `sum(kube_node_status_capacity{resource="cpu"})`},
		{"memory", "kai_queue_allocated_memory_bytes", `sum(kube_node_status_capacity{resource="memory"})`},
	}
}

// Config says where the history of usage comes from and how it is weighed. Make one with [Parse].
type Config struct {
	Client Client
	// Address is a Prometheus server's URL, or the embedded store's folder; AddressFrom is the environment variable that
	// holds it. At most one of them is set; for the embedded store, neither need be.
	Address, AddressFrom string
	// HalfLife is the age at which usage counts half; 0: all usage in the window counts the same.
	HalfLife time.Duration
	// Window is how far back usage counts.
	Window Window
	// Resolution is the time between two samples.
	Resolution time.Duration
	// Interval is the time between two fetches, Timeout how long one question of a fetch may take.
	Interval, Timeout time.Duration
	// Stale is the age from which the last answer is complained about. It is used all the same.
	Stale time.Duration
	// Wait is how long a starting scheduler waits for the first answer.
	Wait time.Duration
	// Dimensions are the dimensions whose usage counts.
	Dimensions []Dimension
}

// maxSteps bounds the samples of a window: a month at a resolution of five seconds fits.
const maxSteps = 600_000

// Keys of extraParams by which the operator puts an embedded store on a PersistentVolumeClaim; the store itself does not look at them.
const (
	// Claim names the claim.
	Claim = "persistentVolumeClaim"
	// ClaimSize has the operator make it, of this size at least.
	ClaimSize = "persistentVolumeClaimSize"
	// ClaimClass is the storage class of a claim that is made; without it the cluster's default one.
	ClaimClass = "persistentVolumeClaimStorageClass"
)

// claims are these keys.
func claims() []string { return []string{Claim, ClaimSize, ClaimClass} }

// file is KAI's usageDBConfig. Durations are text here so that a bad one is refused by its name.
type file struct {
	ClientType             string `json:"clientType"`
	ConnectionString       string `json:"connectionString"`
	ConnectionStringEnvVar string `json:"connectionStringEnvVar"`
	UsageParams            params `json:"usageParams"`
}

type params struct {
	HalfLifePeriod          string            `json:"halfLifePeriod"`
	WindowSize              string            `json:"windowSize"`
	WindowType              string            `json:"windowType"`
	TumblingWindowStartTime string            `json:"tumblingWindowStartTime"`
	CronString              string            `json:"cronString"`
	FetchInterval           string            `json:"fetchInterval"`
	StalenessPeriod         string            `json:"stalenessPeriod"`
	WaitTimeout             string            `json:"waitTimeout"`
	ExtraParams             map[string]string `json:"extraParams"`
}

// Parse reads KAI's usageDBConfig as JSON. What it leaves out has KAI's default; without a clientType the client is
// Embedded. An error names the key and the rule.
func Parse(text []byte) (Config, error) {
	var f file
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return Config{}, fmt.Errorf("usageDBConfig: %w", err)
	}
	c := Config{Address: f.ConnectionString, AddressFrom: f.ConnectionStringEnvVar}
	p := &f.UsageParams
	for _, step := range []func() error{
		func() error { return c.client(f.ClientType) },
		func() error { return c.times(p) },
		func() error { return c.extras(p.ExtraParams) },
		func() error { return c.window(p) },
	} {
		if err := step(); err != nil {
			return Config{}, fmt.Errorf("usageDBConfig: %w", err)
		}
	}
	return c, nil
}

func (c *Config) client(name string) error {
	switch name {
	case "", string(Embedded), fakeWithHistory:
		c.Client = Embedded
	case string(Prometheus), string(Fake):
		c.Client = Client(name)
	default:
		return fmt.Errorf("clientType is %q; it must be prometheus, embedded, fake or fake-with-history", name)
	}
	switch {
	case c.Address != "" && c.AddressFrom != "":
		return errors.New("connectionString and connectionStringEnvVar are both set; only one may be")
	case c.Client == Prometheus && c.Address == "" && c.AddressFrom == "":
		return errors.New("connectionString and connectionStringEnvVar are both missing; clientType prometheus needs one")
	case c.Client == Prometheus && c.Address != "":
		return checkURL("connectionString", c.Address)
	}
	return nil
}

// Resolve returns the address, read from the environment if need be. Empty: the embedded store's default folder.
func (c *Config) Resolve(lookup func(string) (string, bool)) (string, error) {
	if c.AddressFrom == "" {
		return c.Address, nil
	}
	address, _ := lookup(c.AddressFrom)
	if address == "" {
		return "", fmt.Errorf("usageDBConfig: connectionStringEnvVar: the environment variable %s is not set", c.AddressFrom)
	}
	if c.Client == Prometheus {
		if err := checkURL("connectionStringEnvVar: "+c.AddressFrom, address); err != nil {
			return "", fmt.Errorf("usageDBConfig: %w", err)
		}
	}
	return address, nil
}

func checkURL(key, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The address is not repeated: it may carry a password.
		return fmt.Errorf("%s: not a URL like http://prometheus:9090", key)
	}
	return nil
}

func (c *Config) times(p *params) error {
	var r reading
	c.HalfLife = max(0, r.duration("halfLifePeriod", p.HalfLifePeriod, 0, time.ParseDuration)) // KAI: not positive is off
	c.Interval = r.positive("fetchInterval", p.FetchInterval, time.Minute, time.ParseDuration)
	c.Stale = r.positive("stalenessPeriod", p.StalenessPeriod, 5*time.Minute, time.ParseDuration)
	c.Stale = max(c.Stale, c.Interval) // KAI raises it, or every answer would be stale before the next
	if c.Wait = r.duration("waitTimeout", p.WaitTimeout, time.Minute, time.ParseDuration); c.Wait < 0 {
		r.fail("waitTimeout is %q; it must not be negative", p.WaitTimeout)
	}
	return r.err
}

// extras reads extraParams.
func (c *Config) extras(extra map[string]string) error {
	c.Dimensions = Dimensions()
	metrics := map[string]*string{}
	for i := range c.Dimensions {
		d := &c.Dimensions[i]
		metrics[d.Name+"AllocationMetric"], metrics[d.Name+"CapacityMetric"] = &d.Held, &d.Had
	}
	const timeout, resolution = "usageQueryTimeout", "queryResolution"
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		target := metrics[key]
		switch {
		case key == timeout || key == resolution:
		case c.Client == Embedded && slices.Contains(claims(), key):
		case target == nil:
			known := append(slices.Sorted(maps.Keys(metrics)), timeout, resolution)
			for _, key := range claims() {
				known = append(known, key+" (of the embedded store)")
			}
			return fmt.Errorf("usageParams.extraParams.%s: unknown; known are %s", key, strings.Join(known, ", "))
		case c.Client == Embedded:
			return fmt.Errorf("usageParams.extraParams.%s: the embedded store has its own metrics; only clientType prometheus takes other ones", key)
		case strings.TrimSpace(extra[key]) == "":
			return fmt.Errorf("usageParams.extraParams.%s is empty", key)
		default:
			*target = extra[key]
		}
	}
	var r reading
	c.Timeout = r.positive("extraParams."+timeout, extra[timeout], 10*time.Second, time.ParseDuration)
	c.Resolution = r.positive("extraParams."+resolution, extra[resolution], time.Minute, promDuration)
	return r.err
}

func (c *Config) window(p *params) error {
	var r reading
	size := r.positive("windowSize", p.WindowSize, 7*24*time.Hour, promDuration)
	if r.err != nil {
		return r.err
	}
	switch p.WindowType {
	case "", "sliding":
		c.Window = Sliding(size)
	case "tumbling":
		if p.TumblingWindowStartTime == "" {
			return errors.New("usageParams.tumblingWindowStartTime is missing; windowType tumbling needs it")
		}
		origin, err := time.Parse(time.RFC3339, p.TumblingWindowStartTime)
		if err != nil || origin.Year() < 1800 || origin.Year() > 2200 { // farther away, a difference of times is no duration
			return fmt.Errorf("usageParams.tumblingWindowStartTime is %q; it must be a time like 2026-01-31T00:00:00Z, between the years 1800 and 2200", p.TumblingWindowStartTime)
		}
		c.Window = Tumbling(size, origin)
	case "cron":
		if p.CronString == "" {
			return errors.New("usageParams.cronString is missing; windowType cron needs it")
		}
		w, err := Cron(p.CronString)
		if err != nil {
			return fmt.Errorf("usageParams.cronString: %w", err)
		}
		c.Window = w
	default:
		return fmt.Errorf("usageParams.windowType is %q; it must be sliding, tumbling or cron", p.WindowType)
	}
	switch longest := c.Window.Longest(); {
	case c.Resolution > longest:
		return fmt.Errorf("usageParams.extraParams.queryResolution is %s, longer than the window of %s", model.Duration(c.Resolution), model.Duration(longest))
	case longest/c.Resolution > maxSteps:
		return fmt.Errorf("usageParams.extraParams.queryResolution is %s, too fine for a window of %s: at most %d samples fit", model.Duration(c.Resolution), model.Duration(longest), maxSteps)
	}
	return nil
}

// reading reads durations of usageParams and keeps the first error.
type reading struct{ err error }

func (r *reading) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("usageParams."+format, args...)
	}
}

func (r *reading) duration(key, text string, fallback time.Duration, parse func(string) (time.Duration, error)) time.Duration {
	if text == "" {
		return fallback
	}
	d, err := parse(text)
	if err != nil {
		r.fail("%s is %q; it must be a duration like 90s or 1h30m", key, text)
	}
	return d
}

func (r *reading) positive(key, text string, fallback time.Duration, parse func(string) (time.Duration, error)) time.Duration {
	d := r.duration(key, text, fallback, parse)
	if d <= 0 {
		r.fail("%s is %q; it must be more than 0", key, text)
	}
	return d
}

// promDuration reads Prometheus' notation of durations, which has days and weeks.
func promDuration(text string) (time.Duration, error) {
	d, err := model.ParseDuration(text)
	return time.Duration(d), err
}
