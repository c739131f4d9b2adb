package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// completes bounds how long a shell waits for names.
const completes = 2 * time.Second

// complete offers the names of the PodGroups of a namespace to the shell. It needs the right to list them there, and no other; whoever has
// it not is offered nothing.
func (l *looker) complete(namespace *string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), completes)
		defer cancel()
		groups, err := l.groups(ctx, *namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for i := range groups {
			if strings.HasPrefix(groups[i].Name, begun) {
				out = append(out, groups[i].Name)
			}
		}
		slices.Sort(out)
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// groups lists the PodGroups of one namespace, which is all that needs no right beyond it.
func (l *looker) groups(ctx context.Context, namespace string) ([]v2alpha2.PodGroup, error) {
	namespace, err := l.namespace(namespace)
	if err != nil {
		return nil, err
	}
	c, config, err := dial(l.client, kinds()...)
	if err != nil {
		return nil, err
	}
	var list v2alpha2.PodGroupList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, advise(err, config.Host)
	}
	return list.Items, nil
}
