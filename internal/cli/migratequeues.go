package cli

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/migrate/kueue"
)

// errRefused ends a translation of which nothing was printed.
var errRefused = errors.New("nothing was printed: what cannot be carried over is named above")

// newMigrateQueues is `muster migrate queues`: Queues for another system's.
func newMigrateQueues(d Deps) *cobra.Command {
	var output, from string
	var files []string
	var options kueue.Options
	o := app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	c := &cobra.Command{
		Use: "queues --from kueue [-f FILE[,FILE…]]", Short: "Print the Queues and PriorityClasses that Kueue's objects become, and all that gets lost", Args: cobra.NoArgs,
		Long: "Print the Queues that Kueue's ClusterQueues and Cohorts become, the PriorityClasses that its WorkloadPriorityClasses do, and the labels of\n" +
			"workloads that take the place of Kueue's. It reads the cluster, or manifests (-f; - is standard input), and writes nothing.\n" +
			"In YAML labels and losses are comments at the top, each loss with object, field, rule and what to do instead; kubectl apply takes it as it\n" +
			"is. In JSON they are lists: queues, priorityClasses, labels, losses.\n" +
			"Where something cannot be carried over (a loop of cohorts, a quota that is no quantity, two objects that would become one Queue) nothing\n" +
			"is printed, standard error says what, and the exit status is 1.",
		Example: "  muster migrate queues --from kueue\n  muster migrate queues --from kueue -f kueue.yaml -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "yaml" && output != "json" {
				return fmt.Errorf("--output is %q; it must be yaml or json", output)
			}
			if from != fromKueue {
				return fmt.Errorf("--from is %q; it must be %s: KAI's Queues are Muster's", from, fromKueue)
			}
			in := &kueue.Objects{}
			for _, file := range files {
				text, err := readManifest(file, c.InOrStdin())
				if err != nil {
					return err
				}
				if err := in.Read(file, text); err != nil {
					return err
				}
			}
			var absent []string
			if len(files) == 0 {
				reader, host, err := migrationReader(o)
				if err != nil {
					return err
				}
				if in, absent, err = kueue.Look(c.Context(), reader); err != nil {
					return advise(err, host)
				}
			}
			for _, what := range absent {
				fmt.Fprintf(c.ErrOrStderr(), "the API server has no %s of Kueue's in a version that is read\n", what)
			}
			if in.Empty() {
				return errors.New("there is nothing of Kueue's (" + kueue.Group + ")")
			}
			plan := kueue.Translate(in, options)
			if len(plan.Refusals) > 0 {
				for _, n := range plan.Refusals {
					fmt.Fprintln(c.ErrOrStderr(), n)
					if n.Instead != "" {
						fmt.Fprintln(c.ErrOrStderr(), "  instead: "+n.Instead)
					}
				}
				return errRefused
			}
			if output == "json" {
				return form.Emit(c.OutOrStdout(), output, plan, nil)
			}
			text, err := planYAML(plan)
			if err == nil {
				_, err = c.OutOrStdout().Write(text)
			}
			return err
		},
	}
	fs := c.Flags()
	migrationFlags(fs, &o, &options)
	fs.StringVar(&from, "from", "", "what the queues are of: kueue")
	fs.StringSliceVarP(&files, "filename", "f", nil, "manifests to read instead of the cluster, several documents each; - is standard input")
	fs.StringVarP(&output, "output", "o", "yaml", "yaml or json")
	return c
}

// planYAML is a plan as documents for kubectl, with what is no object as comments.
func planYAML(p *kueue.Plan) ([]byte, error) {
	var b bytes.Buffer
	if len(p.Labels) > 0 {
		b.WriteString("# On workloads, besides spec.schedulerName kai-scheduler:\n")
	}
	for _, l := range p.Labels {
		where := ""
		if l.Namespace != "" {
			where = " (namespace " + l.Namespace + ")"
		}
		fmt.Fprintf(&b, "#   %s instead of %s%s\n", l.Muster, l.Kueue, where)
	}
	if len(p.Losses) > 0 {
		fmt.Fprintf(&b, "# Gets lost (%d):\n", len(p.Losses))
	}
	for _, n := range p.Losses {
		fmt.Fprintf(&b, "#   %s\n", n)
		if n.Instead != "" {
			fmt.Fprintf(&b, "#     instead: %s\n", n.Instead)
		}
	}
	write := func(o any) error {
		text, err := yaml.Marshal(o)
		b.WriteString("---\n")
		b.Write(text)
		return err
	}
	for i := range p.Queues {
		if err := write(&p.Queues[i]); err != nil {
			return nil, fmt.Errorf("print Queue %s: %w", p.Queues[i].Name, err)
		}
	}
	for i := range p.PriorityClasses {
		if err := write(&p.PriorityClasses[i]); err != nil {
			return nil, fmt.Errorf("print PriorityClass %s: %w", p.PriorityClasses[i].Name, err)
		}
	}
	return b.Bytes(), nil
}
