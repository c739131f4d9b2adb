package vcctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

const listQueues = "vcctl queue list"

func (o Options) queue() *cobra.Command {
	return group("queue", "Make queues, look at them, open and close them", o.queueCreate(), o.queueList(), o.queueGet(false), o.queueOperate(), o.queueDelete())
}

// bindQueue has -n mean the queue's name: queues have no namespace.
func (c *call) bindQueue(fs *pflag.FlagSet, name string) {
	fs.StringVarP(&c.name, "name", "n", name, "the queue's `name`")
}

// checkWeight refuses what the API server would refuse, with the flag's name.
func checkWeight(w int32) error {
	if w < 1 || w > 65535 {
		return fmt.Errorf("--weight is %d; it must be between 1 and 65535", w)
	}
	return nil
}

func (o Options) queueCreate() *cobra.Command {
	var weight int32
	var state string
	return o.command("create", "Make a queue", false, func(c *call, fs *pflag.FlagSet) {
		c.bindQueue(fs, "test")
		fs.Int32VarP(&weight, "weight", "w", 1, "the queue's part of what is divided by weight, 1 to 65535")
		fs.StringVarP(&state, "state", "S", "Open", "Open or Closed")
	}, func(ctx context.Context, c *call) error {
		if err := checkWeight(weight); err != nil {
			return err
		}
		if err := oneOf("state", state, "Open", "Closed"); err != nil {
			return err
		}
		q := &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: scheduling.QueueSpec{Weight: weight}}
		if err := c.client.Create(ctx, q); err != nil {
			return fmt.Errorf("create queue %s: %w", c.name, err)
		}
		if state == "Closed" { // the API server takes no status with a new object
			if err := c.operate(ctx, q, bus.CloseQueueAction); err != nil {
				return fmt.Errorf("queue %s is made, and open: %w", c.name, err)
			}
		}
		c.say("create queue %s successfully", c.name)
		return nil
	})
}

// operate sends a queue's Command. Queues have no namespace and Commands have one: it is default.
func (c *call) operate(ctx context.Context, q *scheduling.Queue, action bus.Action) error {
	return c.send(ctx, action, q, scheduling.GroupVersion.WithKind("Queue"), metav1.NamespaceDefault)
}

func (o Options) queueOperate() *cobra.Command {
	var weight int32
	var action string
	return o.command("operate", "Open or close a queue, or change its weight", false, func(c *call, fs *pflag.FlagSet) {
		c.bindQueue(fs, "")
		fs.StringVarP(&action, "action", "a", "", "open, close or update")
		fs.Int32VarP(&weight, "weight", "w", 0, "the new weight for update, 1 to 65535")
	}, func(ctx context.Context, c *call) error {
		if err := oneOf("action", action, "open", "close", "update"); err != nil {
			return err
		}
		switch given := c.Flags().Changed("weight"); {
		case action == "update" && !given:
			return errors.New("update needs the new weight: --weight N")
		case action != "update" && given:
			return fmt.Errorf("--weight is for --action update, and this is %s: leave one of them out", action)
		case given:
			if err := checkWeight(weight); err != nil {
				return err
			}
		}
		var q scheduling.Queue
		if err := c.get(ctx, &q, "queue", listQueues); err != nil {
			return err
		}
		switch action {
		case "update":
			before := q.DeepCopy()
			q.Spec.Weight = weight
			if err := c.client.Patch(ctx, &q, client.MergeFrom(before)); err != nil {
				return fmt.Errorf("change the weight of queue %s: %w", c.name, err)
			}
		case "open":
			if err := c.operate(ctx, &q, bus.OpenQueueAction); err != nil {
				return err
			}
		case "close":
			if err := c.operate(ctx, &q, bus.CloseQueueAction); err != nil {
				return err
			}
		}
		c.say("%s queue %s successfully", action, c.name)
		return nil
	})
}

func (o Options) queueDelete() *cobra.Command {
	return o.command("delete", "Delete a queue", false, func(c *call, fs *pflag.FlagSet) {
		c.bindQueue(fs, "")
	}, func(ctx context.Context, c *call) error {
		if err := c.needName("queue", listQueues); err != nil {
			return err
		}
		if err := c.client.Delete(ctx, &scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: c.name}}); err != nil {
			return c.notFound(err, "queue", listQueues)
		}
		c.say("delete queue %s successfully", c.name)
		return nil
	})
}

func (o Options) queueList() *cobra.Command {
	return o.command("list", "List queues, with how many gangs each has by phase", false, func(c *call, fs *pflag.FlagSet) { c.bindOutput(fs) }, allQueues)
}

// queueGet shows one queue. Swapped it is vqueues: without a name all queues, and the seven columns that it has had from the first.
func (o Options) queueGet(swapped bool) *cobra.Command {
	return o.command("get", "Show a queue, with how many gangs it has by phase", swapped, func(c *call, fs *pflag.FlagSet) {
		c.bindQueue(fs, "")
		c.bindOutput(fs)
	}, func(ctx context.Context, c *call) error {
		if swapped && c.name == "" {
			return allQueues(ctx, c)
		}
		var q scheduling.Queue
		if err := c.get(ctx, &q, "queue", listQueues); err != nil {
			return err
		}
		return c.showQueues(ctx, []scheduling.Queue{q})
	})
}

func allQueues(ctx context.Context, c *call) error {
	var list scheduling.QueueList
	if err := c.client.List(ctx, &list); err != nil {
		return fmt.Errorf("list queues: %w", err)
	}
	return c.showQueues(ctx, list.Items)
}

// showQueues prints queues. Gangs are counted here: nobody writes the counts into the status.
func (c *call) showQueues(ctx context.Context, queues []scheduling.Queue) error {
	if len(queues) == 0 && c.output == "table" {
		c.say("No queues found.")
		return nil
	}
	var groups scheduling.PodGroupList
	if err := c.client.List(ctx, &groups); err != nil {
		return fmt.Errorf("count the queues' PodGroups: %w", err)
	}
	counts := map[string]map[scheduling.PodGroupPhase]int32{}
	for i := range groups.Items {
		g := &groups.Items[i]
		name, phase := g.Spec.Queue, g.Status.Phase
		if name == "" {
			name = keys.DefaultQueue
		}
		if phase == "" { // nobody has looked yet
			phase = scheduling.PodGroupPending
		}
		if counts[name] == nil {
			counts[name] = map[scheduling.PodGroupPhase]int32{}
		}
		counts[name][phase]++
	}
	for i := range queues {
		n, s := counts[queues[i].Name], &queues[i].Status
		s.Inqueue, s.Pending, s.Running = n[scheduling.PodGroupInqueue], n[scheduling.PodGroupPending], n[scheduling.PodGroupRunning]
		s.Unknown, s.Completed = n[scheduling.PodGroupUnknown], n[scheduling.PodGroupCompleted]
	}
	titles := []string{"Name", "Weight", "State", "Parent", "Inqueue", "Pending", "Running", "Unknown", "Completed"}
	if c.swapped {
		titles = []string{"Name", "Weight", "State", "Inqueue", "Pending", "Running", "Unknown"}
	}
	return emit(c, queues, titles, func(q *scheduling.Queue) []string {
		s := &q.Status
		row := []string{q.Name, fmt.Sprint(q.Spec.Weight), dash(string(s.State))}
		if !c.swapped {
			row = append(row, dash(q.Spec.Parent))
		}
		for _, n := range []int32{s.Inqueue, s.Pending, s.Running, s.Unknown, s.Completed} {
			row = append(row, fmt.Sprint(n))
		}
		return row[:len(titles)]
	})
}
