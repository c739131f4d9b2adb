package cli

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	kubebatchcrds "github.com/muster-scheduler/muster/api/kubebatch/crds"
	volcanocrds "github.com/muster-scheduler/muster/api/volcano/crds"
	"github.com/muster-scheduler/muster/internal/app"
)

// crdsManager is the manager of fields of the CRDs that `muster crds apply` wrote.
const crdsManager = "muster-crds"

// NewCRDs returns `muster crds`: the CustomResourceDefinitions that this version needs, and a cluster's brought up to them.
func NewCRDs(d Deps) *cobra.Command {
	volcano, kubeBatch := false, false
	c := &cobra.Command{
		Use: "crds", Short: "Print the CustomResourceDefinitions that this version needs", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var out bytes.Buffer
			for _, f := range definitions(volcano, kubeBatch) {
				out.WriteString("---\n")
				out.Write(bytes.TrimPrefix(f.YAML, []byte("---\n")))
			}
			_, err := out.WriteTo(c.OutOrStdout())
			return err
		},
	}
	o := app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	apply := &cobra.Command{
		Use: "apply", Short: "Bring a cluster's CustomResourceDefinitions up to those of this version", Args: cobra.NoArgs,
		Long: `Applies them on the server, and takes over the fields that others manage: Helm never changes a CustomResourceDefinition, and those of KAI
or of an older version may lack fields. Objects stay as they are. It needs create and patch on those six, with --volcano on Volcano's eleven
too, with --kube-batch on kube-batch's four, and nothing else.`,
		RunE: func(c *cobra.Command, _ []string) error {
			config, err := app.RESTConfig(o)
			if err != nil {
				return err
			}
			writer, err := client.New(config, client.Options{})
			if err != nil {
				return advise(err, config.Host)
			}
			for _, f := range definitions(volcano, kubeBatch) {
				object := &unstructured.Unstructured{}
				if err := yaml.Unmarshal(f.YAML, &object.Object); err != nil {
					return fmt.Errorf("read our own %s: %w", f.Name, err)
				}
				name := object.GetName()
				if err := writer.Apply(c.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(crdsManager), client.ForceOwnership); err != nil {
					return fmt.Errorf("apply the CustomResourceDefinition %s: %w", name, advise(err, config.Host))
				}
				fmt.Fprintln(c.OutOrStdout(), "applied", name)
			}
			return nil
		},
	}
	c.PersistentFlags().BoolVar(&volcano, "volcano", false, "those of Volcano's face, too")
	c.PersistentFlags().BoolVar(&kubeBatch, "kube-batch", false, "those of kube-batch's face, too")
	apply.Flags().StringVar(&o.Kubeconfig, "kubeconfig", "", "file that names the API server; empty: $KUBECONFIG or the user's default, in a pod its cluster")
	apply.Flags().StringVar(&o.Context, "context", "", "context of the kubeconfig; empty: its current one")
	c.AddCommand(apply)
	return c
}

// definitions are Muster's CustomResourceDefinitions, and, if they are wanted, those of Volcano's face, and of kube-batch's.
func definitions(volcano, kubeBatch bool) []crds.File {
	all := crds.All()
	if volcano {
		for _, f := range volcanocrds.All() {
			all = append(all, crds.File(f))
		}
	}
	if kubeBatch {
		for _, f := range kubebatchcrds.All() {
			all = append(all, crds.File(f))
		}
	}
	return all
}
