package roles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/history"
)

// configured prepares a scheduler with a configuration file.
func configured(t *testing.T, text string) (*process, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := parse(t, Scheduler, "--scheduler-conf="+file, "--kubeconfig="+newPlane(t, true).kubeconfig())
	return newProcess([]string{Scheduler}, s, "v", logr.Discard())
}

// TestUsageConfig: usageDBConfig is read with the profile, and a process does not start with a bad one.
func TestUsageConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{usageDBConfig: {clientType: prometheus, connectionString: "http://p:9090"}}`:         "",
		`{usageDBConfig: {clientType: fake}}`:                                                  "",
		`{usageDBConfig: {}}`:                                                                  "",
		`{usageDBConfig: {clientType: prometheus}}`:                                            "connectionString",
		`{usageDBConfig: {clientType: prometheus, connectionStringEnvVar: MUSTER_TEST_UNSET}}`: "MUSTER_TEST_UNSET",
		`{usageDBConfig: {usageParams: {windowType: cron, cronString: "0 0 31 2 *"}}}`:         "cronString",
	} {
		if _, err := configured(t, text); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestHistory: the embedded history is opened where the configuration says, and one that cannot be opened keeps nobody from scheduling.
func TestHistory(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "a", "b")
	p, err := configured(t, `{usageDBConfig: {connectionString: "`+folder+`", usageParams: {waitTimeout: 1ms}}}`)
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Settings.usage()
	if err != nil {
		t.Fatal(err)
	}
	guard, err := p.guard(Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	m, err := usage.NewMetrics(p.MetricsNamespace, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	h := past{config: c, address: folder, metrics: m, guard: guard}
	other, err := history.Open(t.Context(), *c, folder)
	if err != nil {
		t.Fatal(err)
	}
	keeper, done, err := h.open(t.Context())
	if err != nil || keeper == nil {
		t.Fatal(keeper, err)
	}
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- keeper.Run(ctx) }()
	<-keeper.Changed() // what is waited for has an end, though another process has the folder
	if !keeper.Settled() {
		t.Error("scheduling waits for a folder")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if keeper, done, err := (past{}).open(t.Context()); keeper != nil || err != nil {
		t.Error(keeper, err)
	} else {
		done()
	}
	if got, want := historyFolder(func() (string, error) { return "/cache", nil }, "kai-scheduler-west"), "/cache/muster/usage/kai-scheduler-west"; got != want {
		t.Errorf("folder %s, want %s", got, want)
	}
	if got := historyFolder(func() (string, error) { return "", errors.New("no home") }, "x"); !strings.HasPrefix(got, os.TempDir()) {
		t.Errorf("without a home: %s", got)
	}
}
