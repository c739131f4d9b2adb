package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/muster-scheduler/muster/internal/vm"
)

// A value in the file is the CRC-32C of the key and the JSON, as eight hexadecimal digits, a space, and the JSON.
const sumLength = 8

func checksum(key, text []byte) [sumLength]byte {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(crc32.Checksum(key, table), table, text)
	var out [sumLength]byte
	hex.Encode(out[:], []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
	return out
}

func encode(key string, record any) ([]byte, error) {
	text, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	if len(text) > maxRecord {
		return nil, vm.Errorf(vm.Invalid, "%s: it would be %d bytes; at most %d are kept", key, len(text), maxRecord)
	}
	return encodeText(key, text), nil
}

func encodeText(key string, text []byte) []byte {
	sum := checksum([]byte(key), text)
	return append(append(sum[:], ' '), text...)
}

// decodeText is the JSON of a value whose checksum is right.
func decodeText(key, value []byte) ([]byte, error) {
	if len(value) <= sumLength || value[sumLength] != ' ' {
		return nil, fmt.Errorf("record %q has no checksum", key)
	}
	text := value[sumLength+1:]
	if sum := checksum(key, text); !bytes.Equal(sum[:], value[:sumLength]) {
		return nil, fmt.Errorf("record %q does not match its checksum", key)
	}
	return text, nil
}

// decode reads a value strictly: a field that is not known is an error.
func decode(key, value []byte, into any) error {
	text, err := decodeText(key, value)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("record %q: %w", key, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("record %q: there is more than one value", key)
	}
	return nil
}
