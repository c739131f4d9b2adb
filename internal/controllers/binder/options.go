package binder

import (
	"fmt"
	"time"
)

// Options are the settings of the binder that have an effect. Flags of KAI's binder that are not among them are
// accepted on the command line for the sake of existing deployments. Client rates, leader election and the addresses of
// the endpoints belong to the process, not to the role.
type Options struct {
	// MaxConcurrentReconciles is how many requests are worked on at a time, at least 1. Since the binder makes the
	// writes of one request as separate steps, it allows four steps that lead to a bind and one that reports the
	// outcome per unit. Flag --max-concurrent-reconciles; default 10.
	MaxConcurrentReconciles int

	// RateLimiterBaseDelay is how long a member waits after its first failed attempt; each further one doubles it.
	// Flag --rate-limiter-base-delay, in seconds; default 1 s.
	RateLimiterBaseDelay time.Duration

	// RateLimiterMaxDelay bounds that wait. Flag --rate-limiter-max-delay, in seconds; default 60 s.
	RateLimiterMaxDelay time.Duration

	// BundleTimeout is how long a bundle may stay incomplete after the last of its requests to arrive before it is
	// withdrawn. Default 30 s.
	BundleTimeout time.Duration

	// Plugins say which preparers work, and in which order. Flag --plugins; default DefaultPlugins.
	Plugins []Plugin

	// PrepareTimeout is how long the preparation of one member may take before the attempt counts as failed.
	// Default 120 s.
	PrepareTimeout time.Duration

	// ArrivalGrace is how long a request waits for its pod and node to appear in the cache, which may lag behind the
	// cache of the scheduler that wrote the request. Default 2 s.
	ArrivalGrace time.Duration

	// FailedLinger is how long the record of a request that failed for good is kept for whoever decides anew, before
	// the binder itself removes it. Default 60 s.
	FailedLinger time.Duration
}

// DefaultOptions are the defaults named at the fields of Options.
func DefaultOptions() Options {
	return Options{
		MaxConcurrentReconciles: 10,
		RateLimiterBaseDelay:    time.Second,
		RateLimiterMaxDelay:     60 * time.Second,
		BundleTimeout:           30 * time.Second,
		Plugins:                 DefaultPlugins(),
		PrepareTimeout:          120 * time.Second,
		ArrivalGrace:            2 * time.Second,
		FailedLinger:            60 * time.Second,
	}
}

// Validate returns an error that names the first setting that makes no sense.
func (o Options) Validate() error {
	if o.MaxConcurrentReconciles < 1 {
		return fmt.Errorf("max-concurrent-reconciles is %d, must be at least 1", o.MaxConcurrentReconciles)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"rate-limiter-base-delay", o.RateLimiterBaseDelay},
		{"bundle-timeout", o.BundleTimeout},
		{"prepare-timeout", o.PrepareTimeout},
		{"arrival-grace", o.ArrivalGrace},
		{"failed-linger", o.FailedLinger},
	} {
		if d.value <= 0 {
			return fmt.Errorf("%s is %v, must be positive", d.name, d.value)
		}
	}
	if o.RateLimiterMaxDelay < o.RateLimiterBaseDelay {
		return fmt.Errorf("rate-limiter-max-delay is %v, must not be less than rate-limiter-base-delay, %v",
			o.RateLimiterMaxDelay, o.RateLimiterBaseDelay)
	}
	return nil
}

// backoff is the wait after the n-th failed attempt in a row: base, twice base, four times base, ... up to the maximum.
func (o Options) backoff(n int32) time.Duration {
	d := o.RateLimiterBaseDelay
	for i := int32(1); i < n && d < o.RateLimiterMaxDelay; i++ {
		d *= 2
	}
	return min(d, o.RateLimiterMaxDelay)
}
