package app

import "fmt"

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
func SchedulerLease(schedulerName, partition string) string {
	if partition == "" {
		return schedulerName
	}
	return schedulerName + "-" + partition
}
