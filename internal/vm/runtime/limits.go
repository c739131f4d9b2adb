package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// setting is a file of a control group and what is written to it. One that must be is an error where the node has no such file; of the others the controller is then not for pods.
type setting struct {
	file, text string
	must       bool
}

// Limit sets the group's limits, and its processes' score for the kernel's choice of what to end.
func (k KernelCgroups) Limit(_ context.Context, parent, id string, limits spec.Resources) error {
	if parent == "" {
		return nil
	}
	dirs, unified, err := k.groups(parent, id)
	if err != nil {
		return err
	}
	settings := first(limits)
	if unified {
		settings = second(limits)
	} else if len(limits.Unified) > 0 {
		return vm.Errorf(vm.Invalid, "unified: %s: the node has control groups of version 1", strings.Join(slices.Sorted(maps.Keys(limits.Unified)), ", "))
	}
	for _, f := range settings {
		there := false
		for _, dir := range dirs {
			if _, err := os.Stat(filepath.Join(dir, f.file)); err != nil {
				continue
			}
			there = true
			if err := write(dir, f.file, f.text); err != nil {
				return err
			}
		}
		if f.must && !there {
			return vm.Errorf(vm.Invalid, "unified: %s: the node's kernel has no such file for pods", f.file)
		}
	}
	if limits.OOMScore == 0 || len(dirs) == 0 {
		return nil
	}
	return k.score(dirs[0], limits.OOMScore)
}

// first are the files of version 1. Swap is bounded there together with memory, which the pod's group bounds alone: so only that there is to be none can be said.
func first(limits spec.Resources) []setting {
	var out []setting
	if limits.CPUShares > 0 {
		out = append(out, setting{file: "cpu.shares", text: strconv.FormatInt(limits.CPUShares, 10)})
	}
	quota := int64(-1)
	if limits.CPUQuota > 0 {
		quota = limits.CPUQuota
	}
	out = append(out, setting{file: "cpu.cfs_period_us", text: strconv.FormatInt(period(limits), 10)}, setting{file: "cpu.cfs_quota_us", text: strconv.FormatInt(quota, 10)})
	out = append(out, sets(limits)...)
	if limits.Swap != nil && *limits.Swap == 0 {
		out = append(out, setting{file: "memory.swappiness", text: "0"})
	}
	return out
}

// second are the files of version 2. What the kubelet asks for by name comes last, and counts.
func second(limits spec.Resources) []setting {
	var out []setting
	if limits.CPUShares > 0 {
		out = append(out, setting{file: "cpu.weight", text: strconv.FormatInt(weight(limits.CPUShares), 10)})
	}
	quota := "max"
	if limits.CPUQuota > 0 {
		quota = strconv.FormatInt(limits.CPUQuota, 10)
	}
	out = append(out, setting{file: "cpu.max", text: fmt.Sprintf("%s %d", quota, period(limits))})
	out = append(out, sets(limits)...)
	if limits.Swap != nil {
		text := "max"
		if *limits.Swap >= 0 {
			text = strconv.FormatInt(*limits.Swap, 10)
		}
		out = append(out, setting{file: "memory.swap.max", text: text})
	}
	for _, file := range slices.Sorted(maps.Keys(limits.Unified)) {
		out = append(out, setting{file: file, text: limits.Unified[file], must: true})
	}
	return out
}

func period(limits spec.Resources) int64 {
	if limits.CPUPeriod > 0 {
		return limits.CPUPeriod
	}
	return 100_000 // the kernel's default
}

func sets(limits spec.Resources) []setting {
	var out []setting
	if len(limits.Mems) > 0 {
		out = append(out, setting{file: "cpuset.mems", text: spec.FormatCPUList(limits.Mems)})
	}
	if len(limits.CPUs) > 0 {
		out = append(out, setting{file: "cpuset.cpus", text: spec.FormatCPUList(limits.CPUs)})
	}
	return out
}

// weight is version 2's of version 1's shares, by the line that other runtimes draw: 2 is 1, 262144 is 10000.
func weight(shares int64) int64 {
	shares = min(max(shares, 2), 262144)
	return 1 + (shares-2)*9999/262142
}

// score gives the processes of a group their score. To lower one below what it began with needs CAP_SYS_RESOURCE: without it a machine keeps what it has, and runs.
func (k KernelCgroups) score(dir string, score int64) error {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	proc := k.Proc
	if proc == "" {
		proc = "/proc"
	}
	for pid := range strings.FieldsSeq(string(text)) {
		err := write(filepath.Join(proc, pid), "oom_score_adj", strconv.FormatInt(score, 10))
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist): // it has ended
		case errors.Is(err, fs.ErrPermission):
			k.Log.Info("a machine keeps its score for when memory is short: to lower it needs CAP_SYS_RESOURCE", "group", dir, "oom_score_adj", score)
		default:
			return err
		}
	}
	return nil
}
