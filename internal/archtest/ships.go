package archtest

import (
	"path"
	"strings"
)

// products are the programs that run in clusters.
func products() []string { return []string{"cmd/muster", "cmd/muster-node", "cmd/muster-vm"} }

// unshipped are packages of others that nobody's cluster needs: for tests, for plots, and what brings in every cloud's kit.
func unshipped() []string {
	return []string{
		"testing", "github.com/stretchr/testify", "pgregory.net/rapid",
		"gonum.org/v1/plot",
		"github.com/prometheus/prometheus/config", "github.com/aws/aws-sdk-go-v2", "github.com/Azure/azure-sdk-for-go", "cloud.google.com/go",
	}
}

// checkShips is the rule ships. Of this module a package is for tests if its name ends so or it is the climber's, and a suite if it is
// called conformance.
func checkShips(t *Tree) ([]Violation, error) {
	return t.reach("ships", products(), func(p string) bool {
		local, ours := strings.CutPrefix(p, t.Module+"/")
		if !ours {
			return underAny(p, unshipped())
		}
		return strings.HasSuffix(path.Base(local), "test") || path.Base(local) == "conformance" || under(local, dirClimb)
	})
}
