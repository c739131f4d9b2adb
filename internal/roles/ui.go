package roles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/ui"
)

// uiFlag is the flag that says where people are answered.
const uiFlag = "ui-listen-address"

// uiRole answers people's questions about waiting work from the schedulers' own cycles. Nobody waits for it, and every replica answers: it takes no turn.
func uiRole() role {
	return role{
		name: UI, about: "Answer why work waits, from the schedulers' own cycles: JSON, and pages for browsers", apart: true, unled: true, processors: 2, // one for forecasts, which yield, and one for people
		trim: (*Settings).trimUI, flags: (*Settings).uiFlags,
		build: func(p *process, log logr.Logger, c client.Client, _ *aside.Guard) (runner, error) {
			return p.newUI(log, c)
		},
	}
}

// uiFlags declares the flags of the role ui.
func (s *Settings) uiFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.UIListen, uiFlag, ":8443", "address at which people are answered, over TLS")
	fs.StringVar(&s.UICert, "tls-cert-file", "", "file with the certificate to be known by, and those that lead to who signed it; read again every minute. Empty: one of the process's own, whose fingerprint the log says")
	fs.StringVar(&s.UIKey, "tls-private-key-file", "", "file with the certificate's key")
	fs.StringVar(&s.Journal, "journal-folder", "", "folder in which what schedulers decide is kept, for one process; empty: it is not kept")
	fs.DurationVar(&s.JournalKeep, "journal-keep", journal.DefaultKeep, "for how long it is kept, at least 1h")
	fs.StringVar(&s.JournalBytes, "journal-size", "2Gi", "how much of the disk it takes at most, as a quantity, at least 64Ki; the oldest goes first")
	fs.DurationVar(&s.ForecastEvery, "forecast-every", 10*time.Minute, "time between two forecasts of when waiting gangs start, at least 1m; 0: none are made")
	s.profilerFlags(fs)
}

// trimUI keeps of PodGroups, which the role sees only the metadata of, who owns them and how long their owners expect them to run.
func (s *Settings) trimUI(o *cache.Options) {
	o.DefaultTransform = toolscache.TransformFunc(func(obj any) (any, error) {
		m, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			return obj, nil
		}
		kept := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, OwnerReferences: m.OwnerReferences,
		}}
		if text, said := m.Annotations[see.AnnotationExpectedRuntime]; said {
			kept.Annotations = map[string]string{see.AnnotationExpectedRuntime: text}
		}
		return kept, nil
	})
}

// newUI builds what follows the schedulers, and what answers.
func (p *process) newUI(log logr.Logger, c client.Client) (runner, error) {
	metrics, err := ui.NewMetrics(p.registry)
	if err != nil {
		return nil, err
	}
	kept, err := p.openJournal()
	if err != nil {
		return nil, err
	}
	if p.ForecastEvery != 0 && p.ForecastEvery < time.Minute {
		return nil, fmt.Errorf("--forecast-every is %s; it must be 0 or at least 1m", p.ForecastEvery)
	}
	f := &ui.Following{
		Shards: func(ctx context.Context) ([]string, error) { return shardsOf(ctx, c) },
		Find: func(ctx context.Context, shard string) (cycles.Place, error) {
			var l coordinationv1.Lease
			name := app.SchedulerLease(p.SchedulerNames[0], shard)
			if err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &l); err != nil {
				return cycles.Place{}, fmt.Errorf("read the Lease %s/%s: %w", p.Namespace, name, err)
			}
			return cycles.PlaceOf(&l)
		},
		Token: p.ownToken,
		Registry: func(storageCapacity bool) engine.Registry {
			return filters.Register(builtin.Registry(), filters.Options{StorageCapacity: storageCapacity})
		},
		Works: p.works, Log: log, Metrics: metrics, Journal: kept, ForecastEvery: p.ForecastEvery,
	}
	p.ui = ui.New(f, &review.Reviewer{Client: c}, log, nil).Keeping(kept, f.Outlook).Submits(p.SchedulerNames, p.NodePoolKey).Judging(f.Known)
	return closing{f, kept}, nil
}

// closing closes the journal when all that writes in it has ended.
type closing struct {
	*ui.Following
	journal *journal.Journal
}

func (c closing) Run(ctx context.Context) error {
	err := c.Following.Run(ctx)
	if c.journal == nil {
		return err
	}
	return errors.Join(err, c.journal.Close())
}

// openJournal opens the journal that the flags name; nil for none.
func (p *process) openJournal() (*journal.Journal, error) {
	if p.Journal == "" {
		return nil, nil
	}
	size, err := resource.ParseQuantity(p.JournalBytes)
	if err != nil || size.Sign() <= 0 {
		return nil, fmt.Errorf("--journal-size is %q; it must be a quantity such as 2Gi", p.JournalBytes)
	}
	if p.JournalKeep <= 0 {
		return nil, fmt.Errorf("--journal-keep is %s; it must be at least 1h", p.JournalKeep)
	}
	j, err := journal.Open(journal.Options{Folder: p.Journal, Keep: p.JournalKeep, Bytes: size.Value()})
	if err != nil {
		return nil, fmt.Errorf("--journal-folder: %w", err)
	}
	return j, nil
}

// listenUI opens the port at which people are answered.
func (p *process) listenUI() error {
	if p.ui == nil {
		return nil
	}
	l, err := app.Listen(uiFlag, p.UIListen)
	if err != nil {
		return err
	}
	if l == nil {
		return fmt.Errorf("--%s is %q: the role answers nowhere", uiFlag, p.UIListen)
	}
	config, print, err := ui.Certificates(p.UICert, p.UIKey)
	if err != nil {
		return fmt.Errorf("--tls-cert-file, --tls-private-key-file: %w", err)
	}
	p.log.Info("answering people", "address", l.Addr().String(), "certificate", print)
	p.group.AddEarly("ui", func(ctx context.Context) error { return p.ui.Serve(ctx, l, config) })
	return nil
}

// shardsOf lists the partition values of the SchedulingShards that there are; without any, or where the kind is not known, the one of the scheduler that has none.
func shardsOf(ctx context.Context, c client.Client) ([]string, error) {
	var list kaiv1.SchedulingShardList
	if err := c.List(ctx, &list); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("list SchedulingShards: %w", err)
	}
	var out []string
	for i := range list.Items {
		spec := &list.Items[i].Spec
		value := spec.PartitionLabelValue
		if said, ok := spec.Args["partition-label-value"]; ok { // a shard's arguments count before what the operator derives
			value = said
		}
		if !slices.Contains(out, value) {
			out = append(out, value)
		}
	}
	if len(out) == 0 {
		out = []string{""}
	}
	slices.Sort(out)
	return out, nil
}

// ownToken is the token by which this process is known to the API server.
func (p *process) ownToken() (string, error) {
	if file := p.config.BearerTokenFile; file != "" {
		text, err := os.ReadFile(file) // it is renewed
		if err != nil {
			return "", fmt.Errorf("read this process's token: %w", err)
		}
		return strings.TrimSpace(string(text)), nil
	}
	if p.config.BearerToken == "" {
		return "", errors.New("this process has no token to show to schedulers: run it with a service account's")
	}
	return p.config.BearerToken, nil
}

// works says of gangs what their owners say of them, as PodGroups' metadata has it.
func (p *process) works(ctx context.Context) (map[cluster.Key]see.Work, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v2alpha2.GroupVersion.WithKind("PodGroupList"))
	if err := p.cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PodGroups: %w", err)
	}
	out := map[cluster.Key]see.Work{}
	for i := range list.Items {
		m := &list.Items[i]
		for k := range m.OwnerReferences {
			if o := &m.OwnerReferences[k]; o.Controller != nil && *o.Controller || len(m.OwnerReferences) == 1 {
				out[kai.GangKey(m.Namespace, m.Name)], _ = see.Declared(o.Kind, o.Name, m.Annotations, nil) // what cannot be read is not said
			}
		}
	}
	return out, nil
}
