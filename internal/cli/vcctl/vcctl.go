package vcctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/app"
)

// Options are what the commands need of the program that they are part of.
type Options struct {
	// Version is the program's.
	Version string
	// Connect makes a client of --kubeconfig and --master, each "" where it is not given; nil: Connect of this package.
	Connect func(kubeconfig, master string) (client.Client, error)
	// Now is the clock that ages are told by; nil: the real one.
	Now func() time.Time
}

// NewScheme knows the kinds that the commands read and write.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, batch.AddToScheme, bus.AddToScheme, flow.AddToScheme, scheduling.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}

// Connect makes a client for the API server of a kubeconfig; "" is $KUBECONFIG, the user's default file, or in a pod the cluster around it. A
// master is an address that is used in place of the kubeconfig's.
func Connect(kubeconfig, master string) (client.Client, error) {
	config, err := app.RESTConfig(app.ClientOptions{Kubeconfig: kubeconfig, QPS: -1, UserAgent: "vcctl"})
	if err != nil {
		return nil, err
	}
	if master != "" {
		config.Host = master
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("build the client: %w", err)
	}
	return c, nil
}

// New is vcctl with all its commands.
func New(o Options) *cobra.Command {
	root := group("vcctl", "Volcano's command line: jobs, queues, flows and pods", o.job(), o.queue(), o.jobFlow(), o.jobTemplate(),
		group("pod", "Look at the pods of jobs", o.podList()),
		&cobra.Command{Use: "version", Short: "Print the version", Args: cobra.NoArgs, Run: func(c *cobra.Command, _ []string) {
			fmt.Fprintln(c.OutOrStdout(), "vcctl of Muster", o.Version)
		}})
	return asProgram(root)
}

// Names are what Named knows besides vcctl. In these programs -n is the object's name and -N the namespace; in vcctl it is the other way round.
func Names() []string {
	return []string{"vcancel", "vjobs", "vqueues", "vresume", "vsub", "vsuspend"}
}

// Named is the program of that name, of Names or vcctl; nil for any other name.
func Named(name string, o Options) *cobra.Command {
	var c *cobra.Command
	switch name {
	case "vcctl":
		return New(o)
	case "vsub":
		c = o.jobRun(true)
	case "vjobs":
		c = o.jobList(true)
	case "vqueues":
		c = o.queueGet(true)
	case "vcancel":
		c = o.jobDelete(true)
	case "vsuspend":
		c = o.jobCommand(suspend, true)
	case "vresume":
		c = o.jobCommand(resume, true)
	default:
		return nil
	}
	c.Use = name
	return asProgram(c)
}

// asProgram adds what Volcano's programs have of their logging library. Nothing is logged here, so that the flags are taken and without effect.
func asProgram(c *cobra.Command) *cobra.Command {
	c.SilenceUsage, c.SilenceErrors = true, true
	fs := c.PersistentFlags()
	fs.Duration("log-flush-frequency", 5*time.Second, "taken for Volcano's sake, without effect: nothing is logged")
	fs.StringP("v", "v", "0", "a `level`; taken for Volcano's sake, without effect: nothing is logged")
	fs.String("vmodule", "", "`levels` by file; taken for Volcano's sake, without effect: nothing is logged")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; the flags are in %s --help", err, c.CommandPath())
	})
	return c
}

func group(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: app.NeedsCommand}
	c.AddCommand(below...)
	return c
}

// call is one command with the flags that several have.
type call struct {
	Options
	*cobra.Command
	// swapped says that -n is the name and -N the namespace.
	swapped            bool
	kubeconfig, master string
	namespace, name    string
	everywhere         bool
	output             string
	client             client.Client
}

// command makes a command that runs with a client. Flags that do not depend on each other are bound by bind.
func (o Options) command(use, short string, swapped bool, bind func(*call, *pflag.FlagSet), run func(context.Context, *call) error) *cobra.Command {
	c := &call{Options: o, swapped: swapped, output: "table"}
	c.Command = &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cc *cobra.Command, _ []string) error {
		if err := checkOutput(c.output); err != nil {
			return err
		}
		connect := o.Connect
		if connect == nil {
			connect = Connect
		}
		var err error
		if c.client, err = connect(c.kubeconfig, c.master); err != nil {
			return advise(err)
		}
		ctx := cc.Context()
		if ctx == nil {
			ctx = context.Background()
		}
		return advise(run(ctx, c))
	}}
	fs := c.Flags()
	fs.StringVarP(&c.kubeconfig, "kubeconfig", "k", "", "`file` that names the API server; empty: $KUBECONFIG or the user's default")
	fs.StringVarP(&c.master, "master", "s", "", "`address` of the API server, in place of the kubeconfig's")
	bind(c, fs)
	return c.Command
}

// short is the letter of --namespace or --name.
func (c *call) short(flag string) string {
	if (flag == "name") == c.swapped {
		return "n"
	}
	return "N"
}

func (c *call) bindNamespace(fs *pflag.FlagSet) {
	fs.StringVarP(&c.namespace, "namespace", c.short("namespace"), "default", "the `namespace`")
}

func (c *call) bindName(fs *pflag.FlagSet, what string) {
	fs.StringVarP(&c.name, "name", c.short("name"), "", "the "+what+"'s `name`")
}

func (c *call) bindEverywhere(fs *pflag.FlagSet) {
	fs.BoolVar(&c.everywhere, "all-namespaces", false, "those of all namespaces")
}

func (c *call) bindOutput(fs *pflag.FlagSet) {
	fs.StringVarP(&c.output, "output", "o", "table", "table, json or yaml")
}

// inNamespace bounds a list to the namespace that was asked for.
func (c *call) inNamespace() client.InNamespace {
	if c.everywhere {
		return ""
	}
	return client.InNamespace(c.namespace)
}

// needName is the error of a command without a name.
func (c *call) needName(what, list string) error {
	if c.name == "" {
		return fmt.Errorf("which %s? Name it: --name NAME (%s lists them)", what, list)
	}
	return nil
}

// get reads one object; list is the command that shows which there are.
func (c *call) get(ctx context.Context, o client.Object, what, list string) error {
	if err := c.needName(what, list); err != nil {
		return err
	}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: c.name}, o)
	return c.notFound(err, what, list)
}

// notFound says what to do about an object that is not there.
func (c *call) notFound(err error, what, list string) error {
	if !apierrors.IsNotFound(err) || kindMissing(err) {
		return err
	}
	where := ""
	if c.namespace != "" {
		where = fmt.Sprintf(" in namespace %s", c.namespace)
	}
	return fmt.Errorf("there is no %s %s%s: %s shows which there are", what, c.name, where, list)
}

func (c *call) say(format string, args ...any) {
	fmt.Fprintf(c.OutOrStdout(), format+"\n", args...)
}

func (o Options) now() time.Time {
	if o.Now != nil {
		return o.Now()
	}
	return time.Now()
}

// kindMissing says whether the API server does not know the kind at all.
func kindMissing(err error) bool {
	return meta.IsNoMatchError(err) || err != nil && strings.Contains(err.Error(), "the server could not find the requested resource")
}

// advise adds what to do about an error.
func advise(err error) error {
	var nobody *net.OpError
	switch {
	case err == nil:
		return nil
	case kindMissing(err):
		return fmt.Errorf("%w\nthe API server does not know the kind: install Volcano's CustomResourceDefinitions first", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w\nask who runs the cluster for a role that may", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w\nthe API server does not take the credentials of the kubeconfig: log in again", err)
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%w\nchoose another name, or delete that one first", err)
	case errors.As(err, &nobody):
		return fmt.Errorf("%w\nnothing answers there: is it the right cluster (--kubeconfig, --master), and is it up?", err)
	}
	return err
}

// oneOf refuses a flag's value that is none of those it may have.
func oneOf(flag, value string, may ...string) error {
	if slices.Contains(may, value) {
		return nil
	}
	return fmt.Errorf("--%s is %q; it must be one of %s", flag, value, strings.Join(may, ", "))
}

// terminal says whether a person reads along.
func terminal(out any) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
