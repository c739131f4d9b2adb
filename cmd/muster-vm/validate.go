package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/node"
	"github.com/muster-scheduler/muster/internal/vm/validate"
)

func validateCommand() *cobra.Command {
	var logs app.LogOptions
	var p places
	var v virtletFlags
	noBoot, format, root := false, "text", "/"
	bootTime := 2 * time.Minute
	c := &cobra.Command{
		Use: "validate", Short: "Look whether this node can run machines, a boot of one included; each check says ok, or what to do", Args: cobra.NoArgs,
		Long: "Takes the flags of up, and its file, environment and objects. The three processes need not run, and nothing of theirs is changed.",
		RunE: func(c *cobra.Command, _ []string) error {
			log, err := app.Logger(os.Stderr, logs)
			if err != nil {
				return err
			}
			if _, err := v.resolve(c.Context(), c.Flags(), p.dir, log); err != nil {
				return err
			}
			settings, err := p.machines.check()
			if err != nil {
				return err
			}
			if format != "text" && format != "json" {
				return fmt.Errorf("--output %q: must be text or json", format)
			}
			all := []validate.Finding{}
			ok := validate.Run(c.Context(), p.checks(settings, root, noBoot, bootTime), func(f validate.Finding) {
				if all = append(all, f); format == "text" {
					_ = f.Write(c.OutOrStdout())
				}
			})
			if format == "json" {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				if err := e.Encode(all); err != nil {
					return err
				}
			}
			if !ok {
				return errors.New("this node is not ready for machines")
			}
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&noBoot, "no-boot", false, "boot no machine")
	f.DurationVar(&bootTime, "boot-time", bootTime, "how long the machine may take")
	f.StringVarP(&format, "output", "o", format, "text or json")
	f.StringVar(&root, "host-root", root, "where the host's /sys, /proc, /dev and /lib are")
	p.bind(f)
	v.bind(f)
	app.BindZapFlags(f, &logs)
	return c
}

// checks are those of a node with these settings.
func (p *places) checks(settings node.Config, root string, noBoot bool, bootTime time.Duration) []validate.Check {
	self, err := os.Executable()
	settings.StateDir = filepath.Join(p.dir, "state")
	out := []validate.Check{
		{Name: "user", Do: "run it, and muster-vm up, as root", Run: func(context.Context) (string, error) {
			if id := os.Geteuid(); id != 0 {
				return "", fmt.Errorf("user %d is not root", id)
			}
			return "root", err
		}},
		validate.Cgroups(filepath.Join(root, "sys/fs/cgroup")),
		validate.Kernel(root),
		validate.Programs(map[string]string{settings.QEMU: "machines", "qemu-img": "persistent roots", "mkfs.ext4": "disks of FlexVolumes", "debugfs": "files in root disks"},
			map[string]string{p.machines.virtiofsd: "pods that mount a directory are refused"}),
		validate.Reach(p.machines.qemuUser, settings.UID, settings.GID, settings.StateDir, self, settings.QEMU),
		{
			Name: "cni", Do: fmt.Sprintf("put a network's configuration into %s and its plugins into %s, or name others (--cni-conf-dir, --cni-bin-dir)", p.confDir, p.binDir),
			Run: func(ctx context.Context) (string, error) {
				name, err := network.CheckCNI(ctx, network.Config{CNIConfDir: p.confDir, CNIBinDirs: []string{p.binDir}, StateDir: filepath.Join(p.dir, "net")})
				return fmt.Sprintf("network %q of %s", name, p.confDir), err
			},
		},
		{Name: "libvirt", Do: "start libvirtd 9.0 or later with QEMU 7.2 or later, or name its socket (--libvirt-uri)", Run: func(ctx context.Context) (string, error) {
			own, qemu, err := node.LibvirtVersions(ctx, settings.LibvirtURI)
			if err == nil {
				err = errors.Join(atLeast("libvirt", own, 9, 0), atLeast("QEMU", qemu, 7, 2))
			}
			return fmt.Sprintf("libvirt %s with QEMU %s", own, qemu), err
		}},
	}
	if noBoot {
		return out
	}
	advice := "look into libvirt's log of the machine (/var/log/libvirt/qemu/muster-*self-test.log)"
	if settings.DomainType == "kvm" {
		advice += ", and use --domain-type qemu, or hardware whose virtualization works: /dev/kvm can be there and not work"
	}
	return append(out, validate.Check{Name: "boot", Do: advice, Time: bootTime, Run: func(ctx context.Context) (string, error) {
		took, err := node.SelfTest(ctx, settings, self)
		return fmt.Sprintf("a machine of type %s ran after %v", settings.DomainType, took.Round(10*time.Millisecond)), err
	}})
}

// atLeast judges a version.
func atLeast(what, have string, major, minor int) error {
	var a, b int
	if _, err := fmt.Sscanf(have, "%d.%d", &a, &b); err != nil {
		return fmt.Errorf("%s %q: no version", what, have)
	}
	if a < major || a == major && b < minor {
		return fmt.Errorf("%s is %s, and must be %d.%d or later", what, have, major, minor)
	}
	return nil
}
