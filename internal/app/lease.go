package app

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The Lease of each role has the name that KAI gives it, so that Muster and KAI never lead the same role of one cluster at once.
const (
	LeaseAdmission  = "ojptxr84.kai.scheduler"
	LeaseBinder     = "2ad35f9c.kai.scheduler"
	LeasePodGrouper = "54dff599.kai.scheduler"
	LeasePodGroup   = "o1x22tjj.kai.scheduler"
	LeaseQueue      = "ov3xj497.kai.scheduler"
	LeaseNodeScale  = "7n7h49uc.kai.scheduler"
	LeaseOperator   = "41fce092.run.ai"
)

// LeaseName is the Lease of a role other than the scheduler; an unknown role is an error.
func LeaseName(role string) (string, error) {
	switch role {
	case "admission":
		return LeaseAdmission, nil
	case "binder":
		return LeaseBinder, nil
	case "podgrouper":
		return LeasePodGrouper, nil
	case "podgroup":
		return LeasePodGroup, nil
	case "queue":
		return LeaseQueue, nil
	case "nodescale":
		return LeaseNodeScale, nil
	case "operator":
		return LeaseOperator, nil
	}
	return "", fmt.Errorf("role %q has no leader Lease", role)
}

// SchedulerLease is the Lease of the scheduler of one shard: the scheduler's name, and the shard's partition value if it has one.
// A partition value that cannot be in an object's name (KAI elects only among several replicas, and cannot then) is written in
// characters that can, with a hash of it at the end.
func SchedulerLease(schedulerName, partition string) string {
	if partition == "" {
		return schedulerName
	}
	name := schedulerName + "-" + partition
	if len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(partition))
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(partition))
	return schedulerName + "-" + strings.Trim(plain, "-") + "-" + hex.EncodeToString(sum[:4])
}
