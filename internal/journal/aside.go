package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
)

// Set keeps a text beside the entries, in the place of an earlier one of that name: whole, or not at all. Get returns it.
func (j *Journal) Set(name string, text []byte) error {
	path := filepath.Join(j.o.Folder, asideName(name))
	sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(text, castagnoli))
	err := os.WriteFile(path+".new", append(sum, text...), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new") // what is left of it takes room
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return nil
}

// Get returns what Set kept; nil for nothing. What is not what was kept is an error.
func (j *Journal) Get(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(j.o.Folder, asideName(name)))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read beside the journal: %w", err)
	case len(text) < 4 || binary.LittleEndian.Uint32(text) != crc32.Checksum(text[4:], castagnoli):
		return nil, fmt.Errorf("read beside the journal: %s is not what was written", asideName(name))
	}
	return text[4:], nil
}

// asideName is a file's name for any name.
func asideName(name string) string {
	return "aside-" + strings.Map(func(r rune) rune {
		if r == '/' || r == 0 {
			return '_'
		}
		return r
	}, name)
}
