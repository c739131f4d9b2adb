package demo

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// fairShareMetric is the scheduler's own figure.
const fairShareMetric = "kai_queue_fair_share_gpu"

// fairShares asks the scheduler what each queue is entitled to, in GPUs.
func (s *story) fairShares(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.metrics, nil)
	if err != nil {
		return nil, fmt.Errorf("read the fair shares: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the fair shares: %w", err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the fair shares from %s: %w", s.metrics, err)
	}
	out := map[string]float64{}
	for _, m := range families[fairShareMetric].GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == "queue_name" {
				out[l.GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no %s", s.metrics, fairShareMetric)
	}
	return out, nil
}
