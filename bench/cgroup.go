package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cgroupRoot is where the kernel shows the cgroups.
const cgroupRoot = "/sys/fs/cgroup"

// figures are what a container's cgroup tells of it, from its start on.
type figures struct {
	// Peak is the most memory it had, in bytes: the process's own, its sockets', and files that the kernel keeps in memory for it and
	// gives up when the limit is reached.
	Peak int64 `json:"peakBytes"`
	// LimitReached counts how often there had to be given up something, or more.
	LimitReached int64 `json:"limitReached"`
	// Throttled is how long a limit of CPU kept it from running, in seconds.
	Throttled float64 `json:"throttledSeconds"`

	used time.Duration // time on processors
}

// cgroup is a container's: one folder in version 2, one for each controller in version 1.
type cgroup struct {
	memory, cpu, cpuacct string
	v2                   bool
}

// findCgroup finds a container's by its id, below the cgroup of its node.
func findCgroup(root, node, id string) (cgroup, error) {
	var g cgroup
	places := map[string]*string{"memory": &g.memory, "cpu": &g.cpu, "cpuacct": &g.cpuacct}
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		g.v2 = true
		places = map[string]*string{"": &g.memory}
	}
	for controller, place := range places {
		err := filepath.WalkDir(filepath.Join(root, controller, node), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist): // another container's, which has just gone
				return nil
			case err == nil && id != "" && d.Name() == id:
				*place = path
				return fs.SkipAll
			}
			return err
		})
		if err == nil && *place == "" {
			err = errors.New("there is none")
		}
		if err != nil {
			return g, fmt.Errorf("the cgroup of container %q (%s): %w", id, controller, err)
		}
	}
	if g.v2 {
		g.cpu, g.cpuacct = g.memory, g.memory
	}
	return g, nil
}

// read reads the figures. An error is a container that has ended, or a kernel that does not tell.
func (g cgroup) read() (figures, error) {
	var f figures
	var used, throttled int64
	type row struct {
		into      *int64
		path, key string
	}
	rows := []row{ // nanoseconds
		{&f.Peak, g.memory + "/memory.max_usage_in_bytes", ""},
		{&f.LimitReached, g.memory + "/memory.failcnt", ""},
		{&throttled, g.cpu + "/cpu.stat", "throttled_time"},
		{&used, g.cpuacct + "/cpuacct.usage", ""},
	}
	unit := time.Nanosecond
	if g.v2 {
		rows = []row{ // microseconds
			{&f.Peak, g.memory + "/memory.peak", ""},
			{&f.LimitReached, g.memory + "/memory.events", "max"},
			{&throttled, g.cpu + "/cpu.stat", "throttled_usec"},
			{&used, g.cpu + "/cpu.stat", "usage_usec"},
		}
		unit = time.Microsecond
	}
	for _, r := range rows {
		var err error
		if *r.into, err = number(r.path, r.key); err != nil {
			return figures{}, err
		}
	}
	f.used, f.Throttled = time.Duration(used)*unit, (time.Duration(throttled) * unit).Seconds()
	return f, nil
}

// process is the first process of the container.
func (g cgroup) process() (int, error) {
	text, err := os.ReadFile(filepath.Join(g.memory, "cgroup.procs"))
	if err != nil {
		return 0, fmt.Errorf("the processes of a cgroup: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return 0, fmt.Errorf("%s has no process: %w", g.memory, err)
	}
	return pid, nil
}

// number is the one in a file, or behind a key at the beginning of one of its lines.
func number(path, key string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("a figure of a cgroup: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if key == "" {
			name, value = "", name
		}
		if name == key {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("a figure of a cgroup: %s has no %s", path, key)
}
