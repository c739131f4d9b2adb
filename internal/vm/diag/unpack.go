package diag

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/muster-scheduler/muster/internal/vm"
)

// maxDump bounds a tree as JSON, in bytes. Control characters take six bytes in JSON.
const maxDump = 512 << 20

// Read reads a tree, as JSON.
func Read(from io.Reader) (Result, error) {
	var r Result
	limited := &io.LimitedReader{R: from, N: maxDump}
	if err := json.NewDecoder(limited).Decode(&r); err != nil {
		if limited.N <= 0 {
			err = fmt.Errorf("has more than %d bytes", maxDump)
		}
		return r, vm.Errorf(vm.Invalid, "dump: %w", err)
	}
	if r.Name != Root {
		return r, vm.Errorf(vm.Invalid, "dump: the root's name is %.64q, which must be %q", r.Name, Root)
	}
	return r, nil
}

// Unpack makes files of a tree, below a folder that is not there or empty: a file NAME.EXT for each text, a folder for each folder, and NAME.error for
// errors. The tree may be anybody's: no name leads out of the folder, and no file is replaced. Errors of kind Invalid name the result.
func Unpack(r Result, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return vm.Errorf(vm.Invalid, "%s: must be empty, has %s", dir, there[0].Name())
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	files := 0
	return unpackAt(root, "", r, 0, &files)
}

// maxFiles bounds what a tree becomes.
const maxFiles = 100_000

func unpackAt(root *os.Root, at string, r Result, depth int, files *int) error {
	if !nameForm.MatchString(r.Name) || r.Ext != "" && !nameForm.MatchString(r.Ext) {
		return vm.Errorf(vm.Invalid, "%s: result %.64q with ext %.64q: names are letters, digits, '_', '.', '-' and ':', and begin with a letter, digit or '_'", or(at, "root"), r.Name, r.Ext)
	}
	if *files++; depth > 2*maxDepth || *files > maxFiles {
		return vm.Errorf(vm.Invalid, "%s: the tree is deeper than %d or has more than %d results", or(at, "root"), 2*maxDepth, maxFiles)
	}
	path := filepath.Join(at, r.Name)
	if depth == 0 {
		path = at
	}
	var errs []error
	if r.Error != "" {
		errs = append(errs, write(root, filepath.Join(at, r.Name+".error"), r.Error+"\n"))
	}
	switch {
	case r.IsDir:
		if depth > 0 {
			if err := root.Mkdir(path, 0o700); err != nil {
				return err
			}
		}
		for _, child := range r.Children {
			errs = append(errs, unpackAt(root, path, child, depth+1, files))
		}
	case r.Data != "" || r.Error == "":
		if r.Ext != "" {
			path += "." + r.Ext
		}
		errs = append(errs, write(root, or(path, r.Name), r.Data))
	}
	return errors.Join(errs...)
}

func write(root *os.Root, path, text string) error {
	f, err := root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	return errors.Join(err, f.Close())
}
