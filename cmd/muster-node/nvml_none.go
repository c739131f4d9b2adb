//go:build !cgo

package main

import "errors"

// driver is no GPUs: this binary was built without cgo, and can only simulate one.
type driver struct{}

// UUIDs implements nodedevice.Devices.
func (driver) UUIDs() ([]string, error) {
	return nil, errors.New("this muster-node was built without cgo and cannot ask the GPU driver; build it with make bin/muster-node, or use --simulated-device")
}
