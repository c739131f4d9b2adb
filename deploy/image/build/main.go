package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		stop()
		os.Exit(1)
	}
}

// options are what is asked for.
type options struct {
	source  string
	out     string
	version string
	arches  []string
}

func command() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use: "build", Short: "Write Muster's container images as OCI archives", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.OutOrStdout()) },
	}
	c.Flags().StringVar(&o.source, "source", ".", "root of the source tree")
	c.Flags().StringVar(&o.out, "out", "dist", "folder for the archives, made if it is not there")
	c.Flags().StringVar(&o.version, "version", "", "version of the images (default: what git describe says of the tree)")
	c.Flags().StringSliceVar(&o.arches, "arch", []string{"amd64", "arm64"}, "architectures of the images, as GOARCH calls them")
	return c
}

func (o *options) run(ctx context.Context, say io.Writer) error {
	tree, err := describe(ctx, o.source)
	if err != nil {
		return err
	}
	if o.version != "" {
		tree.version = o.version
	}
	work, err := os.MkdirTemp("", "muster-image-")
	if err != nil {
		return fmt.Errorf("folder for the build: %w", err)
	}
	defer os.RemoveAll(work) //nolint:errcheck // a temporary folder
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("folder for the archives: %w", err)
	}
	for _, r := range recipes() {
		var images []built
		for _, arch := range o.arches {
			fmt.Fprintf(say, "%s %s for linux/%s\n", r.name, tree.version, arch)
			b, err := r.build(ctx, tree, arch, work)
			if err != nil {
				return fmt.Errorf("image %s for linux/%s: %w", r.name, arch, err)
			}
			images = append(images, b)
		}
		path := filepath.Join(o.out, r.name+".tar")
		digest, err := write(path, r.name+":"+tree.version, images)
		if err != nil {
			return fmt.Errorf("image %s: %w", r.name, err)
		}
		for i := range images {
			bill := filepath.Join(o.out, fmt.Sprintf("%s-%s.spdx.json", r.name, images[i].arch))
			if err := os.WriteFile(bill, images[i].bill, 0o644); err != nil { //nolint:gosec // for everybody to read
				return fmt.Errorf("bill of materials: %w", err)
			}
		}
		fmt.Fprintf(say, "  %s  %s\n", digest, path)
	}
	return nil
}

// tree is the source tree, as far as images say something of it.
type tree struct {
	root     string
	version  string
	revision string
	made     time.Time // of the commit: the time of everything in an image
}

// built is an image for one architecture.
type built struct {
	arch  string
	image v1.Image
	bill  []byte
}

// describe asks git about a tree.
func describe(ctx context.Context, root string) (*tree, error) {
	git := func(args ...string) (string, error) {
		c := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
		c.Stderr = os.Stderr
		out, err := c.Output()
		if err != nil {
			return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out)), nil
	}
	t := &tree{root: root}
	var err error
	if t.version, err = git("describe", "--tags", "--always", "--dirty"); err != nil {
		return nil, err
	}
	if t.revision, err = git("rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	at, err := git("log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("time of the commit: %w", err)
	}
	t.made = time.Unix(seconds, 0).UTC()
	return t, nil
}
