package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// Defaults of KAI's format.
const (
	defaultCycles   = 100
	defaultWindow   = 5
	defaultKValue   = 1.0
	defaultPriority = 100
	defaultWeight   = 1.0
)

// defaultStep is what a cycle of a file without a step stands for: usage is sampled once a minute in a cluster, and once a
// cycle here.
const defaultStep = time.Minute

// maxCycles bounds a simulation: a century at ten minutes.
const maxCycles = 5_300_000

// Config is a simulation of queues that compete for long: KAI's file format, keys without regard to case, and what Muster adds to
// it. Zero values mean what is said at each field.
type Config struct {
	// Cycles is how many cycles there are; 100 when neither it nor Duration is given.
	Cycles *int `json:"cycles,omitempty"`
	// WindowSize is how much of the past counts as usage, in cycles (5 when not given) or as a time ("7d"). HalfLifePeriod is the age
	// at which usage counts half, likewise; 0, the default, for no fading.
	WindowSize     *Span `json:"windowSize,omitempty"`
	HalfLifePeriod *Span `json:"halfLifePeriod,omitempty"`
	// KValue is how strongly usage counts; 1 when not given.
	KValue *float64           `json:"kValue,omitempty"`
	Nodes  []ConfigNodes      `json:"nodes,omitempty"`
	Queues []ConfigQueue      `json:"queues,omitempty"`
	Jobs   map[string]JobList `json:"jobs,omitempty"` // by leaf queue

	// Step is how long a cycle is (Muster's); a minute when not given. Duration is how long the simulation is, instead of Cycles.
	Step     *Span `json:"step,omitempty"`
	Duration *Span `json:"duration,omitempty"`
	// Grace is how long an evicted pod takes to go (Muster's); 0 when not given.
	Grace *Span `json:"grace,omitempty"`
	// Seed is for what is random in Jobs (Muster's).
	Seed uint64 `json:"seed,omitempty"`
}

// ConfigNodes are Count equal nodes; 1 when not given.
type ConfigNodes struct {
	GPUs  int  `json:"gpus"`
	Count *int `json:"count,omitempty"`
}

// ConfigQueue is a queue.
type ConfigQueue struct {
	Name         string   `json:"name"`
	Parent       string   `json:"parent,omitempty"` // "" for a top-level queue
	Priority     *int     `json:"priority,omitempty"`
	DeservedGPUs float64  `json:"deservedGPUs,omitempty"` // -1: unlimited
	Weight       *float64 `json:"weight,omitempty"`
	// LimitGPUs is what the queue may never exceed (Muster's); unlimited when not given.
	LimitGPUs *float64 `json:"limitGPUs,omitempty"`
}

// ConfigJobs are NumJobs gangs of NumPods pods of GPUs each that a queue submits. In KAI's format all come at once and run until
// they are evicted, to wait for another turn.
type ConfigJobs struct {
	GPUs    float64 `json:"gpus"`
	NumPods *int    `json:"numPods,omitempty"` // 1 when not given
	NumJobs *int    `json:"numJobs,omitempty"` // 1 when not given, or with Every no bound
	// What follows is Muster's. MinPods is how many pods a gang can work with; all when not given.
	MinPods *int `json:"minPods,omitempty"`
	// Duration is how long a gang works.
	Duration *Span `json:"duration,omitempty"`
	// Start is when the first gang comes, Every how long after it the next one does. Random makes gaps and durations vary
	// around these means (exponential distributions).
	Start  *Span `json:"start,omitempty"`
	Every  *Span `json:"every,omitempty"`
	Random bool  `json:"random,omitempty"`
	// Priority orders gangs within the queue; 50 when not given. 100 and above may not be preempted.
	Priority *int `json:"priority,omitempty"`
}

// JobList is one ConfigJobs, as in KAI's format, or a list of them.
type JobList []ConfigJobs

// UnmarshalJSON implements json.Unmarshaler.
func (l *JobList) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		return strict(text, (*[]ConfigJobs)(l))
	}
	*l = make(JobList, 1)
	return strict(text, &(*l)[0])
}

// strict decodes and refuses unknown keys.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// Span is an amount of time: a number of cycles, or a time such as 90s, 10m, 6h, 7d, 2w.
type Span struct {
	Cycles float64
	Time   time.Duration // when it was given as a time
	timed  bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Span) UnmarshalJSON(text []byte) error {
	if !bytes.HasPrefix(text, []byte(`"`)) {
		if err := json.Unmarshal(text, &s.Cycles); err != nil {
			return fmt.Errorf("%s is neither a number of cycles nor a time such as 10m or 7d", text)
		}
		return nil
	}
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return err
	}
	d, err := parseTime(word)
	if err != nil {
		return err
	}
	s.Time, s.timed = d, true
	return nil
}

// parseTime is time.ParseDuration with days and weeks.
func parseTime(word string) (time.Duration, error) {
	for unit, day := range map[string]float64{"d": 1, "w": 7} {
		if number, ok := strings.CutSuffix(word, unit); ok {
			v, err := strconv.ParseFloat(number, 64)
			hours := v * day * 24
			if err != nil || math.IsNaN(v) || math.Abs(hours) > 2_000_000 {
				return 0, fmt.Errorf("%q is not a time such as 10m, 6h, 7d or 2w", word)
			}
			return time.Duration(hours * float64(time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(word)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time such as 10m, 6h, 7d or 2w", word)
	}
	return d, nil
}

// cycles is the span in cycles of that step.
func (s *Span) cycles(step time.Duration) float64 {
	if s.timed {
		return float64(s.Time) / float64(step)
	}
	return s.Cycles
}

// duration is the span as a time.
func (s *Span) duration(step time.Duration) time.Duration {
	switch {
	case s == nil:
		return 0
	case s.timed:
		return s.Time
	}
	return time.Duration(s.Cycles * float64(step))
}

// ParseConfig reads a simulation in YAML or JSON. Keys that nobody would read are refused. An error names the key and the rule.
func ParseConfig(text []byte) (*Config, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var c Config
	if string(asJSON) != "null" {
		if err := strict(asJSON, &c); err != nil {
			return nil, err
		}
	}
	if _, err := c.resolve(); err != nil {
		return nil, err
	}
	return &c, nil
}

// settings are a Config with its defaults, in the units of the simulation.
type settings struct {
	step           time.Duration
	cycles, window int
	halfLife       float64 // cycles
	grace          time.Duration
	gpus           int64 // milli-GPU of all nodes
	streams        []Stream
}

// resolve checks a Config and fills in what it leaves out.
func (c *Config) resolve() (*settings, error) {
	s := &settings{step: defaultStep, cycles: defaultCycles, window: defaultWindow}
	if c.Step != nil {
		if s.step = c.Step.Time; !c.Step.timed || s.step < time.Millisecond {
			return nil, fmt.Errorf("step must be a time of at least a millisecond, such as 10m: it says how long a cycle is")
		}
	}
	span := func(key string, v *Span, missing, most float64) (float64, error) {
		if v == nil {
			return missing, nil
		}
		n := v.cycles(s.step)
		if !(n >= 0 && n <= most) {
			return 0, fmt.Errorf("%s is %v cycles of %s; it must be between 0 and %v", key, n, s.step, most)
		}
		return n, nil
	}
	switch {
	case c.Cycles != nil && c.Duration != nil:
		return nil, fmt.Errorf("cycles and duration are both given: leave one of them out")
	case c.Cycles != nil:
		s.cycles = *c.Cycles
	case c.Duration != nil:
		s.cycles = int(math.Ceil(min(c.Duration.cycles(s.step), maxCycles+1)))
	}
	if s.cycles < 1 || s.cycles > maxCycles {
		return nil, fmt.Errorf("there are %d cycles; there must be between 1 and %d", s.cycles, maxCycles)
	}
	window, err := span("windowSize", c.WindowSize, defaultWindow, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	if s.window = int(math.Round(window)); s.window < 1 {
		return nil, fmt.Errorf("windowSize is %v cycles; it must be at least one", window)
	}
	if s.halfLife, err = span("halfLifePeriod", c.HalfLifePeriod, 0, math.MaxInt32); err != nil {
		return nil, err
	}
	grace, err := span("grace", c.Grace, 0, math.MaxInt32)
	if err != nil {
		return nil, err
	}
	s.grace = time.Duration(grace * float64(s.step))
	if k := c.kValue(); !(k >= 0 && k <= 1000) {
		return nil, fmt.Errorf("kValue is %v; it must be between 0 and 1000", k)
	}
	for i, n := range c.Nodes {
		count := or(n.Count, 1)
		if n.GPUs < 0 || n.GPUs > 1_000_000 || count < 0 || count > 1_000_000 {
			return nil, fmt.Errorf("nodes[%d]: there are %d nodes of %d GPUs; both must be between 0 and 1000000", i, count, n.GPUs)
		}
		s.gpus += int64(n.GPUs) * int64(count) * 1000
	}
	if err := c.checkQueues(); err != nil {
		return nil, err
	}
	return s, c.jobs(s)
}

func (c *Config) kValue() float64 { return or(c.KValue, defaultKValue) }

// checkQueues checks the tree of queues.
func (c *Config) checkQueues() error {
	parents := map[string]string{}
	for i := range c.Queues {
		q := &c.Queues[i]
		if q.Name == "" {
			return fmt.Errorf("queues[%d]: name is missing", i)
		}
		if _, twice := parents[q.Name]; twice {
			return fmt.Errorf("queues[%d]: there are two queues called %q", i, q.Name)
		}
		parents[q.Name] = q.Parent
		for _, f := range []struct {
			key   string
			value float64
			bound bool
		}{{"deservedGPUs", q.DeservedGPUs, true}, {"limitGPUs", or(q.LimitGPUs, -1), true}, {"weight", or(q.Weight, defaultWeight), false}} {
			if !(f.value >= 0 && f.value <= 1e9) && !(f.bound && f.value == -1) {
				return fmt.Errorf("queue %q: %s is %v; it must be between 0 and 1000000000%s", q.Name, f.key, f.value, map[bool]string{true: ", or -1 for unlimited"}[f.bound])
			}
		}
		if p := or(q.Priority, defaultPriority); p < math.MinInt32 || p > math.MaxInt32 {
			return fmt.Errorf("queue %q: priority is %d; it must be between %d and %d", q.Name, p, math.MinInt32, math.MaxInt32)
		}
	}
	for i := range c.Queues {
		name := c.Queues[i].Name
		at, steps := c.Queues[i].Parent, 0
		for ; at != "" && steps <= len(c.Queues); steps++ {
			next, ok := parents[at]
			if !ok {
				return fmt.Errorf("queue %q: parent %q is no queue", name, at)
			}
			at = next
		}
		if at != "" {
			return fmt.Errorf("queue %q: its parents form a cycle", name)
		}
	}
	return nil
}

// jobs turns Jobs into streams, by queue name.
func (c *Config) jobs(s *settings) error {
	for _, queue := range slices.Sorted(maps.Keys(c.Jobs)) {
		if !slices.ContainsFunc(c.Queues, func(q ConfigQueue) bool { return q.Name == queue }) {
			return fmt.Errorf("jobs: %q is no queue", queue)
		}
		if k := slices.IndexFunc(c.Queues, func(q ConfigQueue) bool { return q.Parent == queue }); k >= 0 {
			return fmt.Errorf("jobs: queue %q has the child %q; only queues without children have jobs", queue, c.Queues[k].Name)
		}
		for i := range c.Jobs[queue] {
			st, err := c.Jobs[queue][i].stream(s.step)
			if err != nil {
				return fmt.Errorf("jobs of queue %q: %w", queue, err)
			}
			st.Queue, st.Name = queue, queue
			if len(c.Jobs[queue]) > 1 {
				st.Name = fmt.Sprintf("%s-%d", queue, i)
			}
			s.streams = append(s.streams, st)
		}
	}
	return nil
}

// stream checks one entry of Jobs.
func (j *ConfigJobs) stream(step time.Duration) (Stream, error) {
	st := Stream{
		Pods: or(j.NumPods, 1), Min: or(j.MinPods, 0), First: j.Start.duration(step), Every: j.Every.duration(step), Random: j.Random,
		Duration: j.Duration.duration(step), Priority: int32(min(or(j.Priority, 50), math.MaxInt32)),
	}
	st.Fixed = st.Priority >= 100
	if st.Count = or(j.NumJobs, 1); j.NumJobs == nil && j.Every != nil {
		st.Count = 0
	}
	const most = 100_000
	switch {
	case !(j.GPUs >= 0 && j.GPUs <= 1_000_000):
		return st, fmt.Errorf("gpus is %v; it must be between 0 and 1000000", j.GPUs)
	case st.Pods < 1 || st.Pods > most:
		return st, fmt.Errorf("numPods is %d; it must be between 1 and %d", st.Pods, most)
	case st.Min < 0 || st.Min > st.Pods:
		return st, fmt.Errorf("minPods is %d; it must be between 0 and numPods, which is %d", st.Min, st.Pods)
	case st.Count < 0 || st.Count > most:
		return st, fmt.Errorf("numJobs is %d; it must be between 0 and %d", st.Count, most)
	case or(j.Priority, 0) < 0:
		return st, fmt.Errorf("priority is %d; it must not be negative", *j.Priority)
	}
	for key, v := range map[string]time.Duration{"start": st.First, "duration": st.Duration, "every": st.Every} {
		if v < 0 {
			return st, fmt.Errorf("%s is %s; it must not be negative", key, v)
		}
	}
	if j.Every != nil && st.Every < time.Second {
		return st, fmt.Errorf("every is %s; it must be at least a second", st.Every)
	}
	if j.NumJobs != nil && *j.NumJobs == 0 {
		st.Every = 0
	}
	st.Requests = Room(int64(math.Round(j.GPUs*1000)), 0, 0, 1)
	return st, nil
}

// or is what p points to, or a default.
func or[T any](p *T, missing T) T {
	if p == nil {
		return missing
	}
	return *p
}
