// Package operator plays workload operators: for each object of a kind in its Table whose CRD is installed, it makes
// the pods that the real operator would, with the same names, labels, owner and environment, and writes the
// conditions that tell how the object goes.
//
// It answers what a scheduler sees of such a workload, and no more: it makes no Services, HPAs or PodGroups, and
// restarts what fails without back-off. A further kind is a further row of the Table.
package operator
