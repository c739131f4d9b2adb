package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Images that are on every real node: no registry is asked for them.
const (
	// busyboxImage has busybox and a link for each of its applets.
	busyboxImage = "registry.example/busybox:1"
	// pauseImage holds a pod's namespaces.
	pauseImage = "registry.example/pause:1"
)

// writeBusybox writes an archive, of the form of `docker save`, with both images. They share their one layer.
func writeBusybox(path string) (err error) {
	layer, err := busyboxLayer()
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := tar.NewWriter(f)
	if err := add(w, "layer.tar", 0o644, layer); err != nil {
		return err
	}
	sum := sha256.Sum256(layer)
	type entry struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var manifest []entry
	for name, command := range map[string][]string{busyboxImage: {"sh"}, pauseImage: {busybox, "tail", "-f", "/dev/null"}} {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Cmd": command, "Env": []string{"PATH=/bin"}},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
		})
		if err != nil {
			return err
		}
		file := fmt.Sprintf("%x.json", sha256.Sum256(config))
		if err := add(w, file, 0o644, config); err != nil {
			return err
		}
		manifest = append(manifest, entry{Config: file, RepoTags: []string{name}, Layers: []string{"layer.tar"}})
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	return errors.Join(add(w, "manifest.json", 0o644, text), w.Close())
}

// busyboxLayer is a root with this machine's busybox in it.
func busyboxLayer() ([]byte, error) {
	program, err := os.ReadFile(busybox)
	if err != nil {
		return nil, err
	}
	applets, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := add(w, "bin/busybox", 0o755, program); err != nil {
		return nil, err
	}
	for _, applet := range strings.Fields(string(applets)) {
		if applet == "busybox" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func add(w *tar.Writer, name string, mode int64, body []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(body))}); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}
