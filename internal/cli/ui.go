package cli

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/ui"
)

// lookEvery is the time for which a look at the cluster counts.
const lookEvery = 5 * time.Second

func newUI(d Deps) *cobra.Command {
	l := &looker{deps: d}
	var port int
	c := &cobra.Command{
		Use: "ui", Short: "Show pages about work that waits, on this machine, with the kubeconfig's rights", Args: cobra.NoArgs,
		Long: "Show the pages of the role ui on this machine, with the rights of the kubeconfig's user: jobs and why they wait, and queues. The command looks at the\n" +
			"cluster itself, as explain does, at most every five seconds while somebody asks; what it shows is not the scheduler's view, and every page says so. It\n" +
			"prints the address of the pages, with a secret in it: who has not got it is not answered.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := app.SignalContext(c.Context())
			defer stop()
			looks := &looks{look: func(ctx context.Context) (*see.Cycle, error) {
				v, err := l.look(ctx)
				if err != nil {
					return nil, err
				}
				return v.cycle, nil
			}}
			if _, _, err := looks.Look(ctx, ""); err != nil { // who may not look is told now
				return err
			}
			listener, err := app.ListenLocal("port", port)
			if err != nil {
				return err
			}
			secret := rand.Text()
			fmt.Fprintf(c.OutOrStdout(), "http://%s/?secret=%s\n", listener.Addr(), secret)
			return localAnswerer(looks, secret).Submits(l.schedulerNames, l.partition.Key).Serve(ctx, listener, nil)
		},
	}
	l.flags(c)
	_ = c.Flags().MarkHidden("output") // there is nothing to print
	c.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1; 0: any free one")
	return c
}

// localAnswerer answers whoever knows the secret, with what the looks have.
func localAnswerer(looks ui.Cycles, secret string) *ui.Answerer {
	return ui.New(looks, anybody{}, logr.Discard(), nil).Local(secret)
}

// anybody is a reviewer for pages that show what the one who asks could read himself.
type anybody struct{}

func (anybody) Caller(*http.Request) (authenticationv1.UserInfo, error) {
	return authenticationv1.UserInfo{Username: "you"}, nil
}

func (anybody) Resource(context.Context, authenticationv1.UserInfo, string, string, string, string) error {
	return nil
}

// looks has the latest look at the cluster.
type looks struct {
	look func(context.Context) (*see.Cycle, error)

	mu    sync.Mutex
	cycle *see.Cycle
	at    time.Time
}

// Names are those of shards: the one that the flags name.
func (*looks) Names() []string { return []string{""} }

// Look returns a look of at most five seconds ago.
func (k *looks) Look(ctx context.Context, _ string) (*see.Cycle, string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cycle != nil && time.Since(k.at) < lookEvery {
		return k.cycle, "", nil
	}
	c, err := k.look(ctx)
	if err != nil {
		return nil, "", err
	}
	k.cycle, k.at = c, time.Now()
	return c, "", nil
}
