package cloudinit

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// TestISO: what is written is read back, under the label and the whole names that cloud-init looks for; the same data gives the same bytes, and
// nothing else is left in the directory.
func TestISO(t *testing.T) {
	t.Parallel()
	for _, form := range []spec.ImageType{spec.NoCloud, spec.ConfigDrive} {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			in := full()
			in.Spec.CloudInit.Type = form
			in.Files = append(in.Files, File{Path: "/big", Content: bytes.Repeat([]byte("0123456789"), 20000)})
			d, err := Build(in)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			name := filepath.Join(dir, "cidata.iso")
			if err := os.WriteFile(name, []byte("of an earlier start"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := WriteISO(name, d); err != nil {
				t.Fatal(err)
			}
			one, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			again := filepath.Join(dir, "again.iso")
			if err := WriteISO(again, d); err != nil {
				t.Fatal(err)
			}
			two, err := os.ReadFile(again)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(one, two) {
				for i := range one {
					if i >= len(two) || one[i] != two[i] {
						t.Errorf("two images of the same data differ from byte %d (sector %d, offset %d)", i, i/sector, i%sector)
						break
					}
				}
			}
			left, err := os.ReadDir(dir)
			if err != nil || len(left) != 2 {
				t.Errorf("%v, %v are left", left, err)
			}
			if info, err := os.Stat(name); err != nil || info.Mode() != 0o600 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			readBack(t, name, d)
		})
	}
}

func readBack(t *testing.T, name string, d *Data) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fs, err := iso9660.Read(file.New(f, true), 0, 0, sector)
	if err != nil {
		t.Fatal(err)
	}
	if label := strings.TrimRight(fs.Label(), " \x00"); label != d.Label {
		t.Errorf("label %q, want %q", label, d.Label)
	}
	for _, want := range d.Files {
		r, err := fs.OpenFile("/"+want.Path, os.O_RDONLY)
		if err != nil {
			t.Errorf("%s: %v", want.Path, err)
			continue
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, want.Content) {
			t.Errorf("%s has %d bytes, want %d: %v", want.Path, len(got), len(want.Content), err)
		}
	}
}

// TestISORefusesPaths: a file cannot be written outside of the image.
func TestISORefusesPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	err := WriteISO(filepath.Join(dir, "x.iso"), &Data{Label: "cidata", Files: []File{{Path: "../../evil"}}})
	if err == nil || !strings.Contains(err.Error(), `"../../evil": must be a relative path`) {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}
