// Package image holds the recipes of the two container images, and checks that they agree with the tree: Dockerfile is muster,
// every role of the control plane; Dockerfile.node is muster-node, what runs on nodes. Both are built from the root of the
// source tree, run as a user without rights, and hold one binary.
package image
