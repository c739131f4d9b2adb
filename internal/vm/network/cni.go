package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/muster-scheduler/muster/internal/vm"
)

// interfaceName is what CNI plugins are asked to call a pod's first interface, as every kubelet's runtime does.
const interfaceName = "eth0"

// cni calls CNI plugins through libcni, with a cache of its own.
type cni struct {
	confDir string
	lib     *libcni.CNIConfig
	// alone says that no other runtime uses the networks of confDir. CNI's GC tells plugins all attachments that there are: beside another
	// runtime it would take that one's addresses away.
	alone   bool
	timeout time.Duration // of one call of all plugins of a list
	room    chan struct{} // plugins at once
}

func newCNI(c Config) *cni {
	e := &boundedExec{}
	return &cni{
		confDir: c.CNIConfDir, lib: libcni.NewCNIConfigWithCacheDir(c.CNIBinDirs, filepath.Join(c.StateDir, "cni"), e), alone: c.NetworksAreOurs,
		timeout: c.CNITimeout, room: make(chan struct{}, atOnce),
	}
}

// config reads the first valid configuration of the folder, by file name, as kubelets' runtimes do; it is read anew for each pod. The list
// that it returns names all its plugins in itself, because DEL may need it when the folder has changed.
func (c *cni) config() ([]byte, error) {
	files, err := libcni.ConfFiles(c.confDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, vm.Errorf(vm.Unavailable, "CNI configuration: %w", err)
	}
	slices.Sort(files)
	var errs []error
	for _, f := range files {
		list, err := loadList(f)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f, err))
			continue
		}
		return whole(list)
	}
	if len(errs) > 0 {
		return nil, vm.Errorf(vm.Unavailable, "no valid CNI configuration in %s: %w", c.confDir, errors.Join(errs...))
	}
	return nil, vm.Errorf(vm.Unavailable, "no CNI configuration in %s", c.confDir)
}

func loadList(file string) (*libcni.NetworkConfigList, error) {
	var list *libcni.NetworkConfigList
	var err error
	if filepath.Ext(file) == ".conflist" {
		list, err = libcni.NetworkConfFromFile(file)
	} else {
		var one *libcni.PluginConfig
		one, err = libcni.ConfFromFile(file) //nolint:staticcheck // nodes still have files of one plugin
		switch {
		case err == nil && one.Network.Type == "":
			err = errors.New("it names no plugin (type)")
		case err == nil:
			list, err = libcni.ConfListFromConf(one) //nolint:staticcheck // as above
		}
	}
	if err != nil {
		return nil, err
	}
	if len(list.Plugins) == 0 {
		return nil, errors.New("it lists no plugins")
	}
	// libcni makes file names of it.
	if bad := utils.ValidateNetworkName(list.Name); bad != nil {
		return nil, bad
	}
	return list, nil
}

func whole(list *libcni.NetworkConfigList) ([]byte, error) {
	raw := make([]json.RawMessage, len(list.Plugins))
	for i, p := range list.Plugins {
		raw[i] = p.Bytes
	}
	return json.Marshal(map[string]any{
		"name": list.Name, "cniVersion": list.CNIVersion, "disableCheck": list.DisableCheck, "disableGC": list.DisableGC, "plugins": raw,
	})
}

func (c *cni) runtime(a attachment) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: a.id, NetNS: a.netns, IfName: interfaceName, Args: a.args, CapabilityArgs: a.capabilities}
}

// begin bounds a call in time, and how many there are at once.
func (c *cni) begin(ctx context.Context) (context.Context, func(), error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	select {
	case c.room <- struct{}{}:
		return ctx, func() { <-c.room; cancel() }, nil
	case <-ctx.Done():
		cancel()
		return nil, nil, vm.Errorf(vm.Unavailable, "CNI: %d calls are under way: %w", cap(c.room), ctx.Err())
	}
}

func (c *cni) add(ctx context.Context, conf []byte, a attachment) (*types100.Result, error) {
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return nil, fmt.Errorf("CNI configuration: %w", err)
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	raw, err := c.lib.AddNetworkList(ctx, list, c.runtime(a))
	if err != nil {
		// Plugins fail for reasons that pass (an agent that restarts, a range that is used up), and say not which.
		return nil, vm.Errorf(vm.Unavailable, "CNI network %q: ADD: %w", list.Name, err)
	}
	result, err := types100.NewResultFromResult(raw)
	if err != nil {
		return nil, fmt.Errorf("CNI network %q: result: %w", list.Name, err)
	}
	return result, nil
}

func (c *cni) del(ctx context.Context, conf []byte, a attachment) error {
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return fmt.Errorf("CNI configuration: %w", err)
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := c.lib.DelNetworkList(ctx, list, c.runtime(a)); err != nil {
		return fmt.Errorf("CNI network %q: DEL: %w", list.Name, err)
	}
	return nil
}

// orphans has the attachments of the cache deleted that no pod owns, each with the configuration that it was added with.
func (c *cni) orphans(ctx context.Context, owned map[string]bool) error {
	cached, err := c.lib.GetCachedAttachments("")
	if err != nil {
		return err
	}
	var errs []error
	for _, at := range cached {
		if owned[at.ContainerID] {
			continue
		}
		list, err := libcni.NetworkConfFromBytes(at.Config)
		if err != nil {
			errs = append(errs, fmt.Errorf("attachment of %s: %w", at.ContainerID, err))
			continue
		}
		ctx, end, err := c.begin(ctx)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		// Its namespace, if there was one, is gone.
		rt := &libcni.RuntimeConf{ContainerID: at.ContainerID, IfName: at.IfName, Args: at.CniArgs, CapabilityArgs: at.CapabilityArgs}
		if err := c.lib.DelNetworkList(ctx, list, rt); err != nil {
			errs = append(errs, fmt.Errorf("attachment of %s: DEL: %w", at.ContainerID, err))
		}
		end()
	}
	if c.alone {
		errs = append(errs, c.gc(ctx, owned))
	}
	return errors.Join(errs...)
}

// gc tells the plugins of the network in force which attachments there are; those of older versions than 1.1 are not asked.
func (c *cni) gc(ctx context.Context, owned map[string]bool) error {
	conf, err := c.config()
	if err != nil {
		return err
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return err
	}
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for id := range owned { // order: a set
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: id, IfName: interfaceName})
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := c.lib.GCNetworkList(ctx, list, args); err != nil {
		return fmt.Errorf("CNI network %q: GC: %w", list.Name, err)
	}
	return nil
}

// CheckCNI says which network pods would be added to, and whether its plugins are there and say that they could (STATUS). It adds nobody. Of the settings only CNI's count.
func CheckCNI(ctx context.Context, c Config) (network string, err error) {
	if c.CNITimeout <= 0 {
		c.CNITimeout = time.Minute
	}
	own := newCNI(c)
	conf, err := own.config()
	if err != nil {
		return "", err
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return "", vm.Errorf(vm.Unavailable, "CNI configuration: %w", err)
	}
	return list.Name, own.status(ctx)
}

// status asks the plugins whether they could add a pod (STATUS). CHECK is not asked: portmap of the distributions fails it for working pods.
func (c *cni) status(ctx context.Context) error {
	conf, err := c.config()
	if err != nil {
		return err
	}
	list, err := libcni.NetworkConfFromBytes(conf)
	if err != nil {
		return vm.Errorf(vm.Unavailable, "CNI configuration: %w", err)
	}
	ctx, end, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for _, p := range list.Plugins {
		if _, err := c.lib.GetVersionInfo(ctx, p.Network.Type); err != nil {
			return vm.Errorf(vm.Unavailable, "CNI network %q: plugin %q: %w", list.Name, p.Network.Type, err)
		}
	}
	if err := c.lib.GetStatusNetworkList(ctx, list); err != nil {
		return vm.Errorf(vm.Unavailable, "CNI network %q: STATUS: %w", list.Name, err)
	}
	return nil
}

// maxPluginOutput is what a plugin may write to each of its outputs, in bytes.
const maxPluginOutput = 1 << 20

// boundedExec runs plugins, and believes neither that they end nor that they stop talking.
type boundedExec struct {
	version.PluginDecoder
}

// FindInPath is libcni's.
func (*boundedExec) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin runs a plugin until it ends or the context does.
func (*boundedExec) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	out, errOut := &bounded{}, &bounded{}
	cmd := exec.CommandContext(ctx, path)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = environ, bytes.NewReader(stdin), out, errOut
	// What it started may keep its outputs open after it ended.
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	switch {
	case err == nil && out.over:
		return nil, fmt.Errorf("plugin %s wrote more than %d bytes", path, maxPluginOutput)
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("plugin %s: %w", path, ctx.Err())
	}
	// A plugin that fails says why on its standard output (CNI specification, "Error").
	said := &types.Error{}
	if out.Len() > 0 && json.Unmarshal(out.Bytes(), said) == nil && (said.Msg != "" || said.Code != 0) {
		return nil, said
	}
	return nil, &types.Error{Msg: fmt.Sprintf("plugin %s: %v: %s", path, err, short(errOut.String()))}
}

// bounded keeps the beginning of what is written to it, and takes the rest.
type bounded struct {
	bytes.Buffer
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	room := maxPluginOutput - b.Len()
	if len(p) > room {
		b.over = true
		_, _ = b.Buffer.Write(p[:room])
		return len(p), nil
	}
	return b.Buffer.Write(p)
}

// ReadFrom hides the buffer's own, which knows no bound.
func (b *bounded) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}
