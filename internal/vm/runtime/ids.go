package runtime

import (
	"crypto/rand"
	"encoding/hex"
	"time"
)

// Clock tells the time.
type Clock func() time.Time

// IDs gives a new id: 32 random bytes in hex.
type IDs func() string

// RandomID is IDs for a node.
func RandomID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it ends the process rather than fail
	return hex.EncodeToString(b[:])
}
