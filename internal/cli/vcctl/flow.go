package vcctl

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
)

func (o Options) jobFlow() *cobra.Command {
	k := filed[flow.JobFlow, *flow.JobFlow]{
		Options: o, use: "jobflow", kind: "JobFlow", titles: []string{"Name", "Namespace", "Phase", "Age"},
		items: func() (client.ObjectList, func() []flow.JobFlow) {
			l := &flow.JobFlowList{}
			return l, func() []flow.JobFlow { return l.Items }
		},
		row: func(f *flow.JobFlow) []string {
			return []string{f.Name, f.Namespace, dash(string(f.Status.State.Phase)), o.age(f.CreationTimestamp)}
		},
		everywhere: true,
	}
	return group("jobflow", "Make flows of jobs, look at them and delete them", k.create(), k.list(), k.get(), k.delete(), k.describe())
}

func (o Options) jobTemplate() *cobra.Command {
	k := filed[flow.JobTemplate, *flow.JobTemplate]{
		Options: o, use: "jobtemplate", kind: "JobTemplate", titles: []string{"Name", "Namespace"},
		items: func() (client.ObjectList, func() []flow.JobTemplate) {
			l := &flow.JobTemplateList{}
			return l, func() []flow.JobTemplate { return l.Items }
		},
		row: func(t *flow.JobTemplate) []string { return []string{t.Name, t.Namespace} },
	}
	return group("jobtemplate", "Make what flows make jobs of, look at it and delete it", k.create(), k.list(), k.get(), k.delete(), k.describe())
}

// filed are the commands of a kind whose objects are made of files.
type filed[T any, P interface {
	*T
	client.Object
}] struct {
	Options
	use, kind string
	titles    []string
	// items makes an empty list, and what reads it.
	items func() (client.ObjectList, func() []T)
	row   func(P) []string
	// everywhere says that list has the flag --all-namespaces.
	everywhere bool
}

func (k filed[T, P]) lister() string { return "vcctl " + k.use + " list" }

func (k filed[T, P]) read(c *call, file string) ([]T, error) {
	objects, err := read[T, P](c, file, k.kind, flow.GroupVersion.String())
	for i := range objects {
		if o := P(&objects[i]); o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
	}
	return objects, err
}

func (k filed[T, P]) create() *cobra.Command {
	var file string
	return k.command("create", "Make each "+k.use+" of a file", false, func(_ *call, fs *pflag.FlagSet) {
		fs.StringVarP(&file, "file", "f", "", "YAML `file`")
	}, func(ctx context.Context, c *call) error {
		if file == "" {
			return errors.New("what shall be made? Name a file: --file FILE")
		}
		objects, err := k.read(c, file)
		if err != nil {
			return err
		}
		for i := range objects {
			o := P(&objects[i])
			if err := c.client.Create(ctx, o); err != nil {
				return fmt.Errorf("create %s %s/%s: %w", k.use, o.GetNamespace(), o.GetName(), err)
			}
			c.say("create %s %s/%s successfully", k.use, o.GetNamespace(), o.GetName())
		}
		return nil
	})
}

func (k filed[T, P]) list() *cobra.Command {
	return k.command("list", "List those of a namespace", false, func(c *call, fs *pflag.FlagSet) {
		c.bindNamespace(fs)
		c.bindOutput(fs)
		if k.everywhere {
			c.bindEverywhere(fs)
		}
	}, func(ctx context.Context, c *call) error {
		list, items := k.items()
		if err := c.client.List(ctx, list, c.inNamespace()); err != nil {
			return fmt.Errorf("list: %w", err)
		}
		if len(items()) == 0 && c.output == "table" {
			c.say("No %ss found.", k.use)
			return nil
		}
		return emit(c, items(), k.titles, k.row)
	})
}

// one binds the flags of commands for one object.
func (k filed[T, P]) one(c *call, fs *pflag.FlagSet) {
	c.bindNamespace(fs)
	c.bindName(fs, k.use)
}

func (k filed[T, P]) get() *cobra.Command {
	return k.command("get", "Show one", false, func(c *call, fs *pflag.FlagSet) {
		k.one(c, fs)
		c.bindOutput(fs)
	}, func(ctx context.Context, c *call) error {
		objects := make([]T, 1)
		if err := c.get(ctx, P(&objects[0]), k.use, k.lister()+" -n "+c.namespace); err != nil {
			return err
		}
		return emit(c, objects, k.titles, k.row)
	})
}

func (k filed[T, P]) describe() *cobra.Command {
	var format string
	return k.command("describe", "Show one whole", false, func(c *call, fs *pflag.FlagSet) {
		k.one(c, fs)
		fs.StringVarP(&format, "format", "o", "yaml", "yaml or json")
	}, func(ctx context.Context, c *call) error {
		if err := oneOf("format", format, "yaml", "json"); err != nil {
			return err
		}
		o := P(new(T))
		if err := c.get(ctx, o, k.use, k.lister()+" -n "+c.namespace); err != nil {
			return err
		}
		return emitOne(c, o, format)
	})
}

func (k filed[T, P]) delete() *cobra.Command {
	var file string
	return k.command("delete", "Delete one, or each of a file", false, func(c *call, fs *pflag.FlagSet) {
		k.one(c, fs)
		fs.StringVarP(&file, "file", "f", "", "YAML `file` that names them, in place of --name")
	}, func(ctx context.Context, c *call) error {
		if file != "" && c.name != "" {
			return errors.New("--file and --name each say what is deleted: leave one of them out")
		}
		var objects []T
		if file != "" {
			var err error
			if objects, err = k.read(c, file); err != nil {
				return err
			}
		} else {
			if err := c.needName(k.use, k.lister()); err != nil {
				return err
			}
			objects = make([]T, 1)
			P(&objects[0]).SetNamespace(c.namespace)
			P(&objects[0]).SetName(c.name)
		}
		for i := range objects {
			o := P(&objects[i])
			c.namespace, c.name = o.GetNamespace(), o.GetName()
			if err := c.client.Delete(ctx, o); err != nil {
				return c.notFound(err, k.use, k.lister()+" -n "+c.namespace)
			}
			c.say("delete %s %s/%s successfully", k.use, c.namespace, c.name)
		}
		return nil
	})
}
