// Package monitoring says what operators watch of a running Muster: dashboards and alert rules, as plain data.
//
// Dashboards and alerts are described in Go, once. The files in deploy/observability are written from that description
// (go test ./internal/monitoring -update), and a test keeps them equal: Grafana's JSON, a file of rules that Prometheus takes, and
// the same rules as the object that the Prometheus operator takes. Every metric that they name is in docs/operations/metrics.md,
// which is checked against what the roles register.
//
// It asks nobody and draws nothing; package judge evaluates the rules without a Prometheus server, and package monitoringtest asks and draws, for the test that asks every panel's queries of a real
// Prometheus server that scrapes a running lab.
package monitoring
