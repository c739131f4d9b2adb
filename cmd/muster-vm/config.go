package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/vm/config"
	"github.com/muster-scheduler/muster/internal/vm/config/cluster"
	"github.com/muster-scheduler/muster/internal/vm/image"
)

// virtletFlags are where up's settings come from besides its flags.
type virtletFlags struct {
	file, kubeconfig, node string
}

// inCluster as a kubeconfig is a pod's own token.
const inCluster = "in-cluster"

func (v *virtletFlags) bind(f *pflag.FlagSet) {
	name := os.Getenv("KUBE_NODE_NAME") // Virtlet's
	if name == "" {
		name, _ = os.Hostname()
	}
	f.StringVar(&v.file, "config", "", "file of Virtlet's settings: a map, in YAML, of the keys that VirtletConfigMapping objects have")
	f.StringVar(&v.kubeconfig, "kubeconfig", "", "ask a cluster for VirtletConfigMapping objects, and before each pull for VirtletImageMapping objects, as this file says, or, with "+inCluster+", as this pod may; empty asks none")
	f.StringVar(&v.node, "node-name", name, "this node's name in the cluster (default: KUBE_NODE_NAME, or the host's name)")
	for _, k := range config.Keys() {
		if k.Flag == "" || f.Lookup(k.Flag) != nil {
			continue
		}
		usage := "Virtlet's name of --" + k.Own
		if k.Without != "" {
			usage = "Virtlet's, without effect: " + k.Without
		}
		f.String(k.Flag, "", usage)
		if k.Switch {
			f.Lookup(k.Flag).NoOptDefVal = "true"
		}
	}
}

// resolve gives Virtlet's settings as all their sources have them, and puts those that somebody set into up's own flags. dir is up's folder.
func (v *virtletFlags) resolve(ctx context.Context, f *pflag.FlagSet, dir string, log logr.Logger) ([]config.Value, error) {
	in := config.Input{Defaults: map[string]string{}, Flags: map[string]string{}, Env: os.Environ(), FileName: v.file}
	for _, k := range config.Keys() {
		if own := f.Lookup(k.Own); own != nil {
			in.Defaults[k.Field] = k.FromOwn(own.DefValue)
		}
	}
	f.Visit(func(one *pflag.Flag) { in.Flags[one.Name] = one.Value.String() })
	if v.file != "" {
		text, err := readSmall(v.file)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		in.File = text
	}
	if v.kubeconfig != "" {
		seen, err := v.ask(ctx, filepath.Join(dir, "virtlet-mappings.json"), log)
		if err != nil {
			return nil, err
		}
		in.Node, in.Mappings = seen.Node, seen.Mappings
	}
	values, err := config.Resolve(in)
	if err != nil {
		return nil, err
	}
	for _, one := range values {
		switch {
		case one.Default():
		case one.Key.Without != "":
			log.Info("A setting of Virtlet's has no effect", "key", one.Key.Field, "value", one.Text, "source", one.Source, "reason", one.Key.Without)
		default:
			if err := f.Set(one.Key.Own, one.Key.ToOwn(one.Text)); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", one.Source, one.Key.Field, err)
			}
		}
	}
	return values, nil
}

func (v *virtletFlags) ask(ctx context.Context, kept string, log logr.Logger) (cluster.Seen, error) {
	client, err := clusterAt(v.kubeconfig)
	if err != nil {
		return cluster.Seen{}, err
	}
	seen, stale, err := cluster.Keep(ctx, client, v.node, kept)
	if stale != nil {
		log.Error(stale, "The cluster does not answer: what it said before is used", "file", kept)
	}
	return seen, err
}

// clusterAt is a client of the cluster that --kubeconfig names.
func clusterAt(kubeconfig string) (dynamic.Interface, error) {
	var c *rest.Config
	var err error
	if kubeconfig == inCluster {
		c, err = rest.InClusterConfig()
	} else {
		c, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return client, nil
}

// imageMappings are the objects as the image store takes them: each judged like a translation file, so that a bad one is named and hinders no other.
func imageMappings(ctx context.Context, from *cluster.Images, log logr.Logger) ([]image.Mapping, error) {
	objects, stale, err := from.List(ctx)
	if err != nil {
		return nil, err
	}
	if stale != nil {
		log.Error(stale, "The cluster does not answer: the image mappings that it had before are used", "mappings", len(objects))
	}
	var out []image.Mapping
	var bad []error
	for _, o := range objects {
		m, err := image.ParseMapping("VirtletImageMapping "+o.Name, o.Spec)
		if err != nil {
			bad = append(bad, err)
			continue
		}
		out = append(out, m)
	}
	return out, errors.Join(bad...)
}

// maxSettings bounds a file of settings, in bytes.
const maxSettings = 1 << 20

func readSmall(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("must be a file")}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSettings+1))
	if err == nil && len(text) > maxSettings {
		err = fmt.Errorf("%s has more than %d bytes", path, maxSettings)
	}
	return text, err
}

// setting is a line of config dump.
type setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source string `json:"source"`
	// Flag is up's flag of that meaning, Without why the key has no effect.
	Flag    string `json:"flag,omitempty"`
	Without string `json:"without,omitempty"`
}

func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Settings of a node, and where they come from", Args: cobra.NoArgs, RunE: app.NeedsCommand}
	var p places
	var v virtletFlags
	var logs app.LogOptions
	format := "table"
	dump := &cobra.Command{
		Use: "dump", Short: "Print what muster-vm up with the same flags, environment and files would use, each value with its source", Args: cobra.NoArgs,
		Long: "Prints Virtlet's keys in their order, then flags of muster-vm up that Virtlet had no key for. Nothing is started or changed, but for the file that\n" +
			"keeps the cluster's answer (see --kubeconfig).",
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := app.Logger(os.Stderr, logs)
			if err != nil {
				return err
			}
			given := map[string]bool{}
			c.Flags().Visit(func(f *pflag.Flag) { given[f.Name] = true })
			values, err := v.resolve(c.Context(), c.Flags(), p.dir, log)
			if err != nil {
				return err
			}
			return writeSettings(c.OutOrStdout(), format, settings(values, c.Flags(), given))
		},
	}
	f := dump.Flags()
	f.StringVarP(&format, "output", "o", format, "table, json or yaml")
	p.bind(f)
	v.bind(f)
	app.BindZapFlags(f, &logs)
	c.AddCommand(dump)
	return c
}

// settings are Virtlet's keys, and then the rest of up's flags.
func settings(values []config.Value, f *pflag.FlagSet, given map[string]bool) []setting {
	var out []setting
	hidden := map[string]bool{"output": true, "help": true, "v": true}
	for _, v := range values {
		one := setting{Key: v.Key.Field, Value: v.Text, Source: v.Source, Without: v.Key.Without}
		if v.Key.Own != "" {
			one.Flag = "--" + v.Key.Own
		}
		hidden[v.Key.Own], hidden[v.Key.Flag] = true, true
		out = append(out, one)
	}
	f.VisitAll(func(one *pflag.Flag) {
		if hidden[one.Name] || strings.HasPrefix(one.Name, "zap-") {
			return
		}
		source := "default"
		if given[one.Name] {
			source = "flag --" + one.Name
		}
		out = append(out, setting{Key: one.Name, Value: one.Value.String(), Source: source, Flag: "--" + one.Name})
	})
	return out
}

func writeSettings(to io.Writer, format string, all []setting) error {
	switch format {
	case "json":
		e := json.NewEncoder(to)
		e.SetIndent("", "  ")
		return e.Encode(all)
	case "yaml":
		text, err := yaml.Marshal(all)
		if err != nil {
			return err
		}
		_, err = to.Write(text)
		return err
	case "table":
	default:
		return fmt.Errorf("--output %q: must be table, json or yaml", format)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tVALUE\tSOURCE\tEFFECT")
	for _, s := range all {
		effect := s.Flag
		if s.Without != "" {
			effect = "none: " + s.Without
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", s.Key, s.Value, s.Source, effect)
	}
	return w.Flush()
}
