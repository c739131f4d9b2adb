// Package disk plays the CSI drivers of a fleet's storage classes: it says on which nodes they are and what they have left,
// makes the volume of a claim once that is due, and deletes volumes that were given back.
//
// It answers what a scheduler sees of storage, and no more: nothing is attached or formatted. As a real provisioner does, it
// takes the selected node off a claim for which there is no room there, so that its pod is decided anew.
package disk
