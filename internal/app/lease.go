package app

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

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
