//go:build cgo

package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// driver is the GPUs of the NVIDIA driver, by its management library, which is loaded when it is asked. On a machine
// without the library UUIDs fails.
type driver struct{}

// UUIDs implements nodedevice.Devices.
func (driver) UUIDs() ([]string, error) {
	lib := nvml.New()
	if ret := lib.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("start NVML: %s", nvml.ErrorString(ret))
	}
	defer func() { _ = lib.Shutdown() }() // the process ends soon, and the driver notices
	count, ret := lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("count GPUs: %s", nvml.ErrorString(ret))
	}
	uuids := make([]string, 0, count)
	for i := range count {
		device, ret := lib.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("open GPU %d: %s", i, nvml.ErrorString(ret))
		}
		uuid, ret := device.GetUUID()
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("UUID of GPU %d: %s", i, nvml.ErrorString(ret))
		}
		uuids = append(uuids, uuid)
	}
	return uuids, nil
}
