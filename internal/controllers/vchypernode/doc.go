// Package vchypernode is the controller of Volcano's HyperNodes: it counts the nodes of each, and makes HyperNodes of node labels where a ConfigMap says of which.
//
//	Node, HyperNode, ConfigMap ──► book ──decide──► plan ──write──► HyperNodes discovered, changed and gone, counts
//
// All is one key: what a node's label means is known when all nodes are. Changes are looked at together, a second after the first. A HyperNode that was discovered says by a label
// of what source; others are counted and left alone. Its name is made of what it stands for, so that a controller that dies makes none twice.
package vchypernode
