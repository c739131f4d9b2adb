package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

const (
	// UsageClientPrometheus reads the usage history from a Prometheus server.
	UsageClientPrometheus = "prometheus"

	// UsageClientEmbedded is the scheduler's own store on disk.
	UsageClientEmbedded = "embedded"

	// UsageClientFake answers with fixed numbers, for tests.
	UsageClientFake = "fake"

	// UsageClientFakeWithHistory answers from a history that the test fills.
	UsageClientFakeWithHistory = "fake-with-history"
)

const (
	// WindowSliding counts the usage of the last WindowSize, at any time.
	WindowSliding = "sliding"

	// WindowTumbling counts the usage since the last multiple of WindowSize after TumblingWindowStartTime.
	WindowTumbling = "tumbling"

	// WindowCron counts the usage since the last time that CronString names.
	WindowCron = "cron"
)

// UsageDBConfig says where the usage history comes from.
type UsageDBConfig struct {
	// ClientType is the kind of source: prometheus, embedded (the scheduler's own store), fake or fake-with-history.
	//
	// +required
	ClientType string `json:"clientType"`

	// ConnectionString is the address of the source. Exactly one of it and ConnectionStringEnvVar must reach the
	// scheduler; the operator fills in the Prometheus it knows.
	//
	// +optional
	ConnectionString string `json:"connectionString,omitempty"`

	// ConnectionStringEnvVar is the name of the scheduler's environment variable that holds the address.
	//
	// +optional
	ConnectionStringEnvVar string `json:"connectionStringEnvVar,omitempty"`

	// UsageParams say how the history is weighed.
	//
	// +optional
	UsageParams *UsageParams `json:"usageParams,omitempty"`
}

// UsageParams say how the usage history is read and weighed.
type UsageParams struct {
	// HalfLifePeriod is the age at which usage counts half. Unset or not positive: all usage in the window counts
	// the same.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	HalfLifePeriod *metav1.Duration `json:"halfLifePeriod,omitempty"`

	// WindowSize is how far back usage counts, as a Prometheus duration, for instance 1w or 7d12h. Default: 1w.
	//
	// +optional
	WindowSize *PrometheusDuration `json:"windowSize,omitempty"`

	// WindowType says where the window begins: sliding, the default, tumbling or cron.
	//
	// +optional
	WindowType *string `json:"windowType,omitempty"`

	// TumblingWindowStartTime is the beginning of one of the tumbling windows; all others follow from it. Required
	// for that type.
	//
	// +optional
	TumblingWindowStartTime *metav1.Time `json:"tumblingWindowStartTime,omitempty"`

	// CronString names the times at which a cron window begins, in the usual five fields and in UTC, unless it
	// begins with CRON_TZ=Area/City. Required for that type.
	//
	// +optional
	CronString string `json:"cronString,omitempty"`

	// FetchInterval is the time between two reads of the source. Default: 1m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	FetchInterval *metav1.Duration `json:"fetchInterval,omitempty"`

	// StalenessPeriod is the age from which what was read is warned about; it is used all the same. Default: 5m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	StalenessPeriod *metav1.Duration `json:"stalenessPeriod,omitempty"`

	// WaitTimeout is how long a starting scheduler waits for the first read. Default: 1m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(self)",message="must be a Go duration, for instance 90s or 1h30m"
	WaitTimeout *metav1.Duration `json:"waitTimeout,omitempty"`

	// ExtraParams are further settings of the client: metric names, query resolution and timeout.
	//
	// +optional
	ExtraParams map[string]string `json:"extraParams,omitempty"`
}

// PrometheusDuration is a duration in Prometheus' notation: whole numbers of y, w, d, h, m, s and ms, in this order,
// each at most once; a year has 365 days.
//
// +kubebuilder:validation:Pattern=`^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$`
type PrometheusDuration string
