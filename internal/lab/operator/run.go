// Package operator plays workload operators.
package operator

import (
	"context"

	"k8s.io/client-go/rest"
)

// Run plays until ctx ends.
func Run(ctx context.Context, cfg *rest.Config) error {
	<-ctx.Done()
	return nil
}
