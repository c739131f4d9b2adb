package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// StorageDomain ends the names of the CSI drivers that the lab plays.
const StorageDomain = ".disk.muster.lab"

// StorageNamespace is where the lab publishes what its drivers have left.
const StorageNamespace = "kube-system"

// Storage is a StorageClass with a CSI driver of its own, which the lab plays: it makes the volumes of claims, as many as
// there is capacity for, and takes away those that were given back.
type Storage struct {
	// Name is the name of the class; the driver is called <Name>.disk.muster.lab. Required.
	Name string `json:"name"`
	// Immediate has volumes made without regard to pods; otherwise they are made where the first pod goes.
	Immediate bool `json:"immediate,omitempty"`
	// Reach is the label of nodes that bounds from where a volume can be used: kubernetes.io/hostname by default.
	// Nodes without it have none of the class.
	Reach string `json:"reach,omitempty"`
	// Capacity is a quantity for each value of Reach, published as CSIStorageCapacity; unlimited and not published
	// if it is empty.
	Capacity string `json:"capacity,omitempty"`
	// VolumesPerNode is how many volumes a node can attach; 0 for any number.
	VolumesPerNode int32 `json:"volumesPerNode,omitempty"`
	// Delay is how long it takes to make a volume: a Go duration, nothing by default.
	Delay string `json:"delay,omitempty"`
	// Retain keeps volumes whose claim is gone; otherwise they are deleted.
	Retain bool `json:"retain,omitempty"`
	// Default makes it the class of claims that name none.
	Default bool `json:"default,omitempty"`
}

// Driver is the name of the class's CSI driver.
func (s *Storage) Driver() string { return s.Name + StorageDomain }

// Key is the label of nodes that bounds from where a volume can be used.
func (s *Storage) Key() string {
	if s.Reach == "" {
		return corev1.LabelHostname
	}
	return s.Reach
}

// Wait is Delay as a duration.
func (s *Storage) Wait() time.Duration {
	d, _ := time.ParseDuration(s.Delay) // validate has refused what is none
	return d
}

// Room is Capacity in bytes; false for unlimited.
func (s *Storage) Room() (int64, bool) {
	q, err := resource.ParseQuantity(s.Capacity)
	return q.Value(), err == nil && s.Capacity != ""
}

// Class is the StorageClass.
func (s *Storage) Class() *storagev1.StorageClass {
	mode, policy := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete
	if s.Immediate {
		mode = storagev1.VolumeBindingImmediate
	}
	if s.Retain {
		policy = corev1.PersistentVolumeReclaimRetain
	}
	c := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Provisioner: s.Driver(), VolumeBindingMode: &mode, ReclaimPolicy: &policy,
	}
	if s.Default {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return c
}

// CSIDriver is the driver, which attaches volumes by itself and says what it has left if that is limited.
func (s *Storage) CSIDriver() *storagev1.CSIDriver {
	_, counts := s.Room()
	attach := false
	return &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: s.Driver()},
		Spec:       storagev1.CSIDriverSpec{AttachRequired: &attach, StorageCapacity: &counts},
	}
}

func (s *Storage) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad := validation.IsDNS1123Subdomain(s.Name)
	check(len(bad) == 0, "name: %q: %s", s.Name, strings.Join(bad, ", "))
	check(len(s.Driver()) <= 63, "name: makes the driver name %s, longer than 63 characters", s.Driver())
	bad = validation.IsQualifiedName(s.Key())
	check(len(bad) == 0, "reach: %q: %s", s.Reach, strings.Join(bad, ", "))
	if s.Capacity != "" {
		q, err := resource.ParseQuantity(s.Capacity)
		check(err == nil && q.Sign() >= 0, "capacity: %q is no quantity of bytes", s.Capacity)
	}
	check(s.VolumesPerNode >= 0, "volumesPerNode: is %d, must not be negative", s.VolumesPerNode)
	if s.Delay != "" {
		d, err := time.ParseDuration(s.Delay)
		check(err == nil && d >= 0, "delay: %q is no duration", s.Delay)
	}
	return errors.Join(errs...)
}

// checkStorage returns what is wrong with the fleet's classes.
func (f Fleet) checkStorage() error {
	var errs []error
	for i := range f.Storage {
		s := &f.Storage[i]
		if err := s.validate(); err != nil {
			errs = append(errs, fmt.Errorf("storage[%d]: %w", i, err))
		}
		if slices.ContainsFunc(f.Storage[:i], func(o Storage) bool { return o.Name == s.Name }) {
			errs = append(errs, fmt.Errorf("storage[%d]: class %s is listed twice", i, s.Name))
		}
	}
	return errors.Join(errs...)
}
