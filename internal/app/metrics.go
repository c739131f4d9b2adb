package app

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
)

// CountRequests makes every client built from config afterwards count its requests, under the names that Kubernetes components
// use: rest_client_requests_total{code,method,host}, where the code is "<error>" when there was no answer, and
// rest_client_request_duration_seconds{verb}, to the first byte of the answer. (They have host there too; there is only one.)
func CountRequests(config *rest.Config, r prometheus.Registerer) error {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rest_client_requests_total", Help: "Requests to the API server, by the answer's status code (<error>: none came), method and host.",
	}, []string{"code", "method", "host"})
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "rest_client_request_duration_seconds", Help: "Time until the API server began to answer, by method.",
		Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
	}, []string{"verb"})
	for _, c := range []prometheus.Collector{requests, took} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register the metrics of API requests: %w", err)
		}
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			began := time.Now()
			resp, err := next.RoundTrip(req)
			code := "<error>"
			if err == nil {
				code = strconv.Itoa(resp.StatusCode)
			}
			requests.WithLabelValues(code, req.Method, req.URL.Host).Inc()
			took.WithLabelValues(req.Method).Observe(time.Since(began).Seconds())
			return resp, err
		})
	})
	return nil
}

// LeaderGauge registers leader_election_master_status{name}, under the name that Kubernetes components use, and returns what sets it:
// 1 while this process holds the Lease, else 0. It is what Election.Told expects.
func LeaderGauge(r prometheus.Registerer) (func(lease string, leads bool), error) {
	status := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status", Help: "1 while this process holds the Lease of that name, 0 while it stands by. No series without --leader-elect.",
	}, []string{"name"})
	if err := r.Register(status); err != nil {
		return nil, fmt.Errorf("register the metric of leaders: %w", err)
	}
	return func(lease string, leads bool) {
		value := 0.0
		if leads {
			value = 1
		}
		status.WithLabelValues(lease).Set(value)
	}, nil
}
