package fairshare_test

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// The worked example of the package comment.
func ExampleDivider_Divide() {
	queue := func(uid string, created, quota, wants int64, weight float64) fairshare.Queue {
		return fairshare.Queue{
			Parent: -1, Created: created, UID: uid,
			Quota: []int64{quota * 1000}, Limit: []int64{fairshare.Unlimited}, Request: []int64{wants * 1000},
			Weight: []int64{fairshare.Fixed(weight)},
		}
	}
	in := &fairshare.Input{
		Total:  []int64{11_000}, // milli-GPU
		Unit:   []int64{1000},
		Queues: []fairshare.Queue{queue("a", 1, 4, 10, 2), queue("b", 2, 2, 3, 1), queue("c", 3, 0, 10, 1)},
	}
	var d fairshare.Divider
	shares := d.Divide(in)
	for i, q := range in.Queues {
		fmt.Println(q.UID, shares.Of(i)[0])
	}
	// Output:
	// a 7000
	// b 3000
	// c 1000
}
