package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/profile"
)

// newRender returns `muster render`.
func newRender(d Deps) *cobra.Command {
	var files, with []string
	env := install.Environment{SchedulerFlags: d.SchedulerFlags}
	c := &cobra.Command{
		Use:   "render -f FILE[,FILE…]",
		Short: "Print the objects that a Config and SchedulingShards ask for, as the operator would apply them",
		Long: `Reads a Config and SchedulingShards from files (- is standard input), asks no cluster, and prints all objects of the installation but the
operator and the CustomResourceDefinitions: for installing without an operator, and for seeing what a change will change. Settings
without effect are told on standard error. A shard that cannot run is an error, and then nothing is printed.`,
		Example: `  muster render -f config.yaml,shards.yaml --repository registry.example/muster --tag v1 | kubectl apply --server-side -f -
  diff <(git show HEAD:config.yaml | muster render -f -) <(muster render -f config.yaml)`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			env.Kinds = map[schema.GroupKind]bool{}
			for _, name := range with {
				known := false
				for _, gvk := range install.ForeignKinds() {
					if gvk.Kind == name {
						env.Kinds[gvk.GroupKind()], known = true, true
					}
				}
				if !known {
					return fmt.Errorf("--with: %q is none of %s", name, strings.Join(foreign(), ", "))
				}
			}
			if d.Registry != nil {
				env.Check = func(s profile.Shard, p engine.Profile) ([]profile.Unknown, error) {
					if err := s.Refuse(d.Registry(false)); err != nil { // the operator would go on without them; who asks here has just written them
						return nil, err
					}
					return profile.Check(s, p, d.Registry(false))
				}
			}
			config, shards, err := readManifests(files, c.InOrStdin())
			if err != nil {
				return err
			}
			objects, warnings, err := install.Render(config, shards, env)
			for _, w := range warnings {
				fmt.Fprintln(c.ErrOrStderr(), "warning:", w)
			}
			if err != nil {
				return err
			}
			var out bytes.Buffer
			for _, o := range objects {
				text, err := install.YAML(o)
				if err != nil {
					return err
				}
				out.WriteString("---\n")
				out.Write(text)
			}
			_, err = out.WriteTo(c.OutOrStdout())
			return err
		},
	}
	f := c.Flags()
	f.StringSliceVarP(&files, "filename", "f", nil, "files with a Config and SchedulingShards, several documents each; - is standard input")
	f.StringVar(&env.Repository, "repository", os.Getenv("MS_REPOSITORY"), "registry and path of images that the Config does not say it of (default: $MS_REPOSITORY)")
	f.StringVar(&env.Tag, "tag", os.Getenv("MS_TAG"), "tag of these images (default: $MS_TAG)")
	f.StringSliceVar(&with, "with", nil, "foreign kinds that the cluster has: "+strings.Join(foreign(), ", "))
	f.BoolVar(&env.CDI, "cdi", false, "nodes hand devices to containers through the Container Device Interface")
	f.BoolVar(&env.SimulatedGPUs, "fake-gpu-nodes", false, "nodes only play at having GPUs")
	return c
}

func foreign() (out []string) {
	for _, gvk := range install.ForeignKinds() {
		out = append(out, gvk.Kind)
	}
	return out
}

// maxManifest bounds what is read of one file.
const maxManifest = 16 << 20

// readManifests reads the one Config, or an empty one if there is none, and all SchedulingShards.
func readManifests(files []string, stdin io.Reader) (*kaiv1.Config, []kaiv1.SchedulingShard, error) {
	if len(files) == 0 {
		return nil, nil, errors.New("-f is missing: which files hold the Config and the SchedulingShards?")
	}
	var config *kaiv1.Config
	var shards []kaiv1.SchedulingShard
	names := map[string]bool{}
	for _, file := range files {
		text, err := readManifest(file, stdin)
		if err != nil {
			return nil, nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for n := 1; ; n++ {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, nil, fmt.Errorf("%s: document %d: %w", file, n, err)
			}
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal(document, &kind); err != nil {
				return nil, nil, fmt.Errorf("%s: document %d: %w", file, n, err)
			}
			bad := func(format string, args ...any) error {
				return fmt.Errorf("%s: document %d: %s", file, n, fmt.Sprintf(format, args...))
			}
			switch version := kaiv1.GroupVersion.String(); {
			case kind == metav1.TypeMeta{} && len(bytes.TrimSpace(uncommented(document))) == 0:
			case kind.APIVersion == version && kind.Kind == "Config":
				if config != nil {
					return nil, nil, bad("a second Config; there is one, named %s", kaiv1.ConfigName)
				}
				config = &kaiv1.Config{}
				if err := yaml.UnmarshalStrict(document, config); err != nil {
					return nil, nil, bad("Config: %v", err)
				}
				if config.Name != kaiv1.ConfigName {
					return nil, nil, bad("Config: metadata.name is %q; only %s counts", config.Name, kaiv1.ConfigName)
				}
			case kind.APIVersion == version && kind.Kind == "SchedulingShard":
				var s kaiv1.SchedulingShard
				if err := yaml.UnmarshalStrict(document, &s); err != nil {
					return nil, nil, bad("SchedulingShard: %v", err)
				}
				if s.Name == "" || names[s.Name] {
					return nil, nil, bad("SchedulingShard: metadata.name is %q; it must be a name that no other has", s.Name)
				}
				names[s.Name] = true
				shards = append(shards, s)
			default:
				return nil, nil, bad("%s %s: only Config and SchedulingShard of %s are read", kind.APIVersion, kind.Kind, version)
			}
		}
	}
	if config == nil {
		config = &kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName}}
	}
	return config, shards, nil
}

func readManifest(file string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("-f: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("-f %s: %w", file, err)
	}
	if len(text) > maxManifest {
		return nil, fmt.Errorf("-f %s: more than %d bytes", file, maxManifest)
	}
	return text, nil
}

// uncommented is a document without its comments and separators.
func uncommented(document []byte) []byte {
	var out []byte
	for line := range bytes.Lines(document) {
		if t := bytes.TrimSpace(line); len(t) > 0 && t[0] != '#' && !bytes.HasPrefix(t, []byte("---")) {
			out = append(out, line...)
		}
	}
	return out
}
