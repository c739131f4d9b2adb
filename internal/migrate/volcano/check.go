package volcano

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/migrate"
)

// Check looks at a cluster as of now, and judges it. It reads, and writes nothing.
func Check(ctx context.Context, reader client.Reader, now time.Time) (*migrate.Report, error) {
	in, err := Look(ctx, reader)
	if err != nil {
		return nil, err
	}
	return Judge(in, now)
}

// checker gathers.
type checker struct {
	in     *Objects
	now    time.Time
	report *migrate.Report
}

// Judge says of what a cluster has whether Muster may be started there now, and what will differ. The error is of the ledger.
func Judge(in *Objects, now time.Time) (*migrate.Report, error) {
	c := &checker{in: in, now: now, report: migrate.NewReport()}
	return c.report, c.report.Run([]migrate.Step{
		{Clear: "no program of Volcano's runs", Look: c.programs},
		{Clear: "nobody holds a Lease of Volcano's", Look: c.leases},
		{Clear: "no webhook of Volcano's is left behind", Look: c.webhooks},
		{Clear: "Volcano's kinds are served", Look: c.definitions},
		{Clear: "nothing that this cluster uses is known to differ", Look: c.differences},
	})
}

func (c *checker) add(l migrate.Level, about, text, next string) { c.report.Add(l, about, text, next) }

// programs looks for what of Volcano's runs. Its scheduler and its controllers stand in the way: two schedulers would place the same pods, and two controllers make them.
func (c *checker) programs() error {
	for i := range c.in.Programs {
		p := &c.in.Programs[i]
		about := fmt.Sprintf("%s %s/%s", p.Kind, brief(p.Namespace), brief(p.Name))
		next := fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=0", brief(p.Namespace), brief(p.Name))
		if p.Kind == "Pod" {
			next = "stop what makes it"
		}
		switch {
		case !p.Wanted || p.What == programAgent:
		case p.What == programAdmission:
			c.add(migrate.See, about, "Volcano's "+p.What+" is to run, and Muster's role admission judges Volcano's kinds too: both would ask for the same", next+", and delete its webhook configurations; or the chart's volcano.admission=false")
		case p.Ready > 0:
			c.add(migrate.Stop, about, fmt.Sprintf("Volcano's %s runs: %d of its pods are ready", p.What, p.Ready), next)
		default:
			c.add(migrate.See, about, fmt.Sprintf("Volcano's %s is to run, and none of its pods is ready: it may come back", p.What), next)
		}
	}
	return c.unread(kindDeployments, kindPods)
}

// leaseLasts is how long a Lease holds that does not say it: Volcano's are of 15 seconds.
const leaseLasts = 15 * time.Second

func (c *checker) leases() error {
	whose := map[string]string{keys.LeaseControllers: "controllers"}
	for name := range c.in.schedulers() { // order: a set
		whose[name] = "scheduler"
	}
	spaces := c.in.namespaces()
	for i := range c.in.Leases {
		l := &c.in.Leases[i]
		what, s := whose[l.Name], &l.Spec
		if what == "" || !slices.Contains(spaces, l.Namespace) || s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil {
			continue
		}
		lasts := leaseLasts
		if s.LeaseDurationSeconds != nil {
			lasts = time.Duration(*s.LeaseDurationSeconds) * time.Second
		}
		if c.now.Sub(s.RenewTime.Time) < lasts {
			c.add(migrate.Stop, fmt.Sprintf("Lease %s/%s", l.Namespace, l.Name), fmt.Sprintf("%s leads as the %s: Volcano's, or a Muster that runs already", brief(*s.HolderIdentity), what), "stop it, and wait until the Lease has run out")
		}
	}
	return c.unread(kindLeases)
}

// webhooks looks for configurations that call Volcano's service while nobody answers: what they judge cannot be created then.
func (c *checker) webhooks() error {
	answers := slices.ContainsFunc(c.in.Programs, func(p Program) bool { return p.What == programAdmission && p.Ready > 0 })
	for _, w := range c.in.Webhooks {
		if !answers && w.Closed {
			c.add(migrate.Stop, w.Kind+" "+brief(w.Name), "it is Volcano's, and none of its webhook's pods is ready: what it judges cannot be created, the pods of Jobs among them", "kubectl delete "+strings.ToLower(w.Kind)+" "+brief(w.Name))
		}
	}
	return c.unread(kindWebhooks)
}

// definitions looks for kinds that are not served.
func (c *checker) definitions() error {
	if len(c.in.Absent) > 0 {
		c.add(migrate.See, "CustomResourceDefinitions", "the API server does not serve Volcano's "+strings.Join(c.in.Absent, ", "), "muster crds apply --volcano (the chart does so before an install and an upgrade): existing objects stay as they are")
	}
	return nil
}

// unread returns the first error of kinds that may not be read; of none, of all kinds but those that others ask for.
func (c *checker) unread(kinds ...string) error {
	for _, kind := range kinds {
		if err := c.in.Unread[kind]; err != nil {
			return err
		}
	}
	return nil
}

// brief is a text of somebody else's, bounded and on one line.
func brief(text string) string {
	const most = 120
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
