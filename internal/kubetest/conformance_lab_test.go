//go:build lab

package kubetest

import (
	"testing"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/internal/lab"
)

// TestRealServerAnswersAlike puts the table of requests to a real API server.
func TestRealServerAnswersAlike(t *testing.T) {
	l, err := lab.Start(t.Context(), lab.Options{CRDs: crds.Documents(), Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	config := l.Config()
	config.QPS = -1
	conform(t, config)
	watched(t, config)
}
