package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// fileID tells a file from every other that had its name, or has its inode now.
type fileID struct {
	Inode uint64 `json:"inode"`
	// Born is the time of the file's making in nanoseconds; 0 where the file system does not say.
	Born int64 `json:"born,omitempty"`
}

func idOf(f *os.File) (fileID, int64, error) {
	var st unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_SIZE|unix.STATX_BTIME, &st); err != nil {
		return fileID{}, 0, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return idFrom(&st), int64(st.Size), nil
}

// idAt is the id of a regular file by path.
func idAt(path string) (fileID, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE|unix.STATX_INO|unix.STATX_BTIME, &st); err != nil {
		return fileID{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fileID{}, fmt.Errorf("%s is no regular file", path)
	}
	return idFrom(&st), nil
}

func idFrom(st *unix.Statx_t) fileID {
	id := fileID{Inode: st.Ino}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
	}
	return id
}

// state is how far the log has come. Everything before Offset in the file Raw, and every older file, is in the log, whose file Log had Size bytes then.
type state struct {
	Sequence uint64 `json:"sequence"`
	Raw      fileID `json:"raw"`
	Offset   int64  `json:"offset"`
	Log      fileID `json:"log"`
	Size     int64  `json:"size"`
	// Lost are bytes that were left out and the log does not tell of yet; Unknown says that it is not all.
	Lost    int64 `json:"lost,omitempty"`
	Unknown bool  `json:"unknown,omitempty"`
}

// The state file has two places, written in turn: a write that is cut short leaves the other. Each is a checksum, a space, JSON, and spaces.
const (
	slotLength = 512
	sumLength  = 8
)

func (s state) encode() ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(text)+sumLength+1 > slotLength {
		return nil, fmt.Errorf("the state has %d bytes", len(text))
	}
	slot := bytes.Repeat([]byte(" "), slotLength)
	copy(slot[sumLength+1:], text)
	copy(slot, fmt.Sprintf("%08x", crc32.ChecksumIEEE(slot[sumLength+1:])))
	return slot, nil
}

func decodeState(slot []byte) (s state, ok bool) {
	if len(slot) != slotLength || string(slot[:sumLength]) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(slot[sumLength+1:])) {
		return s, false
	}
	return s, json.Unmarshal(bytes.TrimSpace(slot[sumLength+1:]), &s) == nil && s.Offset >= 0 && s.Size >= 0
}

// readState gives the newer place that is whole; false where neither is.
func readState(f *os.File) (newest state, ok bool, err error) {
	b := make([]byte, 2*slotLength)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return newest, false, err
	}
	for at := 0; at < len(b); at += slotLength {
		if s, whole := decodeState(b[at : at+slotLength]); whole && (!ok || s.Sequence > newest.Sequence) {
			newest, ok = s, true
		}
	}
	return newest, ok, nil
}
